package gossip

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// memberlist never joins again what it was split from for longer than its dead-node time-out. So every pool tries, for as long as
// it runs: the seeds that are not members, and the members that failed.
const (
	rejoinEvery   = 10 * time.Second
	rejoinAtStart = 300 * time.Millisecond
	failedMemory  = 72 * time.Hour // how long a failed member is tried; Serf's default
	lookupTimeout = 2 * time.Second
)

func (p *pool) rejoin(ctx context.Context) {
	wait := rejoinAtStart
	for first := true; ; first = false {
		joined := p.joinMissing(ctx, first)
		if joined && !p.isBlind() || len(p.cfg.Seeds) == 0 {
			wait = rejoinEvery
		}
		jittered := wait*8/10 + rand.N(wait*4/10)
		wait = min(2*wait, rejoinEvery)
		select {
		case <-ctx.Done():
			return
		case <-time.After(jittered):
		}
	}
}

// joinMissing tries to join what is missing, and reports whether the pool has any other member then.
func (p *pool) joinMissing(ctx context.Context, first bool) bool {
	members, self := p.others()
	alive := map[string]bool{self: true}
	for _, m := range members {
		alive[m.addr] = true
	}
	p.searched(p.joinSeeds(ctx, alive))
	if !first {
		p.warnOfStrays()
		for name, f := range p.failedMembers() {
			if alive[f.addr] || ctx.Err() != nil {
				continue
			}
			if _, err := p.ml.Join([]string{f.addr}); err != nil {
				p.cluster.log.Debug("gossip: failed member does not answer", "pool", p.name, "name", name, "addr", f.addr)
			}
		}
	}
	members, _ = p.others()
	return len(members) > 0
}

// joinSeeds tries the seeds that are not alive, all at once: one that is gone takes streamTimeout, longer than a node that starts waits
// for the others. It returns the addresses that did not answer and whose they are; of a seed without any, the seed.
func (p *pool) joinSeeds(ctx context.Context, alive map[string]bool) map[string]string {
	var mu sync.Mutex
	unanswered := make(map[string]string)
	var tries sync.WaitGroup
	for _, seed := range p.cfg.Seeds {
		tries.Go(func() {
			for _, addr := range p.joinSeed(ctx, seed, alive) {
				mu.Lock()
				unanswered[addr] = seed
				mu.Unlock()
			}
		})
	}
	tries.Wait()
	return unanswered
}

func (p *pool) joinSeed(ctx context.Context, seed string, alive map[string]bool) (unanswered []string) {
	log := p.cluster.log
	addrs, err := resolveSeed(ctx, seed)
	if err != nil {
		log.Warn("gossip: seed does not resolve, will try again", "pool", p.name, "seed", seed, "error", err)
		return []string{seed}
	}
	for _, addr := range addrs {
		if alive[addr] || ctx.Err() != nil {
			continue
		}
		if _, err := p.ml.Join([]string{addr}); err != nil && ctx.Err() == nil {
			unanswered = append(unanswered, addr)
			err = cmp.Or(errors.Unwrap(err), err) // memberlist has a list of one, which prints on several lines
			log.Warn("gossip: seed does not answer, will try again", "pool", p.name, "seed", seed, "addr", addr, "error", err)
		}
	}
	return unanswered
}

// warnOfStrays tells of nodes of this region that are in the WAN pool but not in the LAN pool: no counts reach them.
func (p *pool) warnOfStrays() {
	if p.name != lan {
		return
	}
	near := make(map[string]bool)
	members, _ := p.others()
	for _, m := range members {
		near[m.NodeID] = true
	}
	for _, other := range p.cluster.pools {
		if other == p {
			continue
		}
		members, _ := other.others()
		for _, m := range members {
			if m.Region == p.cluster.self.Region && !near[m.NodeID] {
				p.cluster.log.Warn("gossip: a node of this region is on the WAN but not on the LAN, so no counts reach it: join it on the LAN (--join HOST)", "peer", m.NodeID)
			}
		}
	}
}

func (p *pool) failedMembers() map[string]failedMember {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]failedMember, len(p.failed))
	for name, f := range p.failed {
		if time.Since(f.since) > failedMemory || p.cluster.left(f.Origin()) {
			delete(p.failed, name)
			continue
		}
		out[name] = f
	}
	return out
}

// Members that this node knows, and that do not speak to it, may not know this node: the news of its arrival was lost, or they have
// given it up. They are told directly, which takes seconds where memberlist takes until the next comparison of lists that finds it.
const (
	greetEvery = 2 * time.Second
	greetMost  = 3 // in a row: one that is dead, and not noticed yet, takes streamTimeout
)

func (p *pool) greet(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(greetEvery*8/10 + rand.N(greetEvery*4/10)):
		}
		for i, addr := range p.cluster.silent(p) {
			if i == greetMost || ctx.Err() != nil {
				break
			}
			if _, err := p.ml.Join([]string{addr}); err != nil {
				p.cluster.log.Debug("gossip: silent member does not answer", "pool", p.name, "addr", addr, "error", err)
			}
		}
	}
}

// resolveSeed returns the addresses behind host:port.
func resolveSeed(ctx context.Context, seed string) ([]string, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return []string{seed}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = net.JoinHostPort(h, port)
	}
	return addrs, nil
}
