package gossip

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// memberlist never joins again what it was split from for longer than its dead-node time-out. So every pool keeps
// trying the seeds that are not members, and in another loop, which may be slow, the members that failed.
const (
	rejoinEvery   = 10 * time.Second
	rejoinAtStart = 300 * time.Millisecond
	// How long it takes at least until members that are still waited for are tried again, and for each other member;
	// and how many such tries are under way at a time.
	retryLeast     = 500 * time.Millisecond
	retryPerMember = 20 * time.Millisecond
	maxRetries     = 2 * int(dialTimeout/retryLeast)
	failedMemory   = 72 * time.Hour // how long a failed member is tried; Serf's default
	maxFailed      = 1024           // members that are tried; beyond that those that failed first are not
	lookupTimeout  = 2 * time.Second
	// How many are tried at a time: one that is gone takes dialTimeout. A node that starts waits for its seeds.
	seedDials   = 32
	failedDials = 8
)

// rejoin joins the seeds that are not members.
func (p *pool) rejoin(ctx context.Context) {
	wait := rejoinAtStart
	for next := time.Duration(0); sleep(ctx, next); wait = min(2*wait, rejoinEvery) {
		p.noteUnanswered(p.joinSeeds(ctx))
		if others, _ := p.others(); len(others) > 0 && !p.isBlind() || len(p.cfg.Seeds) == 0 {
			wait = rejoinEvery
		}
		next = jittered(wait)
	}
}

// sleep waits, and reports whether the context goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// jittered returns the duration, or up to a fifth less or more.
func jittered(d time.Duration) time.Duration { return d*8/10 + rand.N(d*4/10) }

// isAlive reports whether a member, or this node itself, is at the address.
func (p *pool) isAlive(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.addr == addr {
			return true
		}
	}
	return p.addr == addr
}

// joinSeeds tries the seeds that are not alive, all at once: one that is gone takes longer than a node that starts may
// wait. It returns the seeds that did not answer by address, or by their own name if they have no address.
func (p *pool) joinSeeds(ctx context.Context) map[string]string {
	var mu sync.Mutex
	unanswered := make(map[string]string)
	var tries sync.WaitGroup
	dials := make(chan struct{}, seedDials)
	for _, seed := range p.cfg.Seeds {
		tries.Go(func() {
			for _, addr := range p.joinSeed(ctx, seed, dials) {
				mu.Lock()
				unanswered[addr] = seed
				mu.Unlock()
			}
		})
	}
	tries.Wait()
	return unanswered
}

// joinSeed tries all addresses of a seed, and returns those that did not answer. dials bounds the attempts under way.
func (p *pool) joinSeed(ctx context.Context, seed string, dials chan struct{}) (unanswered []string) {
	log := p.cluster.log
	addrs, err := resolveSeed(ctx, seed)
	if err != nil {
		log.Warn("gossip: seed does not resolve, will try again", "pool", p.name, "seed", seed, "error", err)
		return []string{seed}
	}
	var mu sync.Mutex
	var tries sync.WaitGroup
	for _, addr := range addrs {
		dials <- struct{}{}
		tries.Go(func() {
			defer func() { <-dials }()
			if p.isAlive(addr) || ctx.Err() != nil {
				return
			}
			if _, err := p.ml.Join([]string{addr}); err != nil && ctx.Err() == nil {
				err = cmp.Or(errors.Unwrap(err), err) // memberlist has a list of one, which prints on several lines
				log.Warn("gossip: seed does not answer, will try again", "pool", p.name, "seed", seed, "addr", addr,
					"error", err)
				mu.Lock()
				defer mu.Unlock()
				unanswered = append(unanswered, addr)
			}
		})
	}
	tries.Wait()
	return unanswered
}

// rejoinFailed joins the members that failed.
func (p *pool) rejoinFailed(ctx context.Context) {
	for wait := jittered(rejoinEvery); sleep(ctx, wait); {
		begun := time.Now()
		p.warnOfStrays()
		p.tryFailed(ctx, p.failedMembers())
		wait = max(time.Second, jittered(rejoinEvery)-time.Since(begun))
	}
}

// retryFailed joins a few of the members that failed and are still waited for, in short intervals: after a partition it
// is enough that one node of each side finds one of the other, and so nodes of large clusters try less often. A try
// takes dialTimeout while the partition lasts, and must not delay those after the heal.
func (p *pool) retryFailed(ctx context.Context) {
	var tries sync.WaitGroup
	defer tries.Wait()
	underWay := make(chan struct{}, maxRetries)
	for wait := retryLeast; sleep(ctx, jittered(wait)); {
		select {
		case underWay <- struct{}{}:
		default: // peers that accept streams and do not answer
			continue
		}
		others, _ := p.others()
		wait = min(max(retryLeast, time.Duration(len(others))*retryPerMember), rejoinEvery)
		recent := slices.DeleteFunc(p.failedMembers(), func(f failedMember) bool {
			return time.Since(f.since) > forgetSilent
		})
		tries.Go(func() {
			p.tryFailed(ctx, recent[:min(len(recent), failedDials)])
			<-underWay
		})
	}
}

// tryFailed tries members that failed, some at a time, in order. Where there are so many that it takes long, the rest
// is for the next time.
func (p *pool) tryFailed(ctx context.Context, failed []failedMember) {
	work := make(chan failedMember)
	var trying sync.WaitGroup
	for range min(failedDials, len(failed)) {
		trying.Go(func() {
			for f := range work {
				if _, err := p.ml.Join([]string{f.addr}); err != nil {
					p.cluster.log.Debug("gossip: failed member does not answer", "pool", p.name, "peer", f.NodeID,
						"addr", f.addr)
				}
			}
		})
	}
	begun := time.Now()
	for _, f := range failed {
		if ctx.Err() != nil || time.Since(begun) > rejoinEvery {
			break
		}
		if p.isAlive(f.addr) || !p.noteTried(f.boot) {
			continue
		}
		work <- f
	}
	close(work)
	trying.Wait()
}

// warnOfStrays logs the nodes of this region that are in the WAN pool but not in the LAN pool: no counts reach them.
func (p *pool) warnOfStrays() {
	if p.name != lan {
		return
	}
	near := make(map[string]bool)
	members, _ := p.others()
	for _, m := range members {
		near[m.NodeID] = true
	}
	for _, pool := range p.cluster.pools {
		members, _ := pool.others()
		for _, m := range members {
			if m.Region == p.cluster.self.Region && !near[m.NodeID] {
				p.cluster.log.Warn("gossip: a node of this region is on the WAN but not on the LAN, so no counts "+
					"reach it: join it on the LAN (--join HOST)", "peer", m.NodeID)
			}
		}
	}
}

// failedMembers returns the members that failed, the one first that was not tried for the longest time.
func (p *pool) failedMembers() []failedMember {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.failed, func(_ string, f failedMember) bool {
		return time.Since(f.since) > failedMemory || p.cluster.left(f.Origin())
	})
	return slices.SortedFunc(maps.Values(p.failed), func(a, b failedMember) int {
		return cmp.Or(a.tried.Compare(b.tried), a.since.Compare(b.since), cmp.Compare(a.boot, b.boot))
	})
}

// noteTried notes that a failed member is tried now, and reports whether it is still one.
func (p *pool) noteTried(boot string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failed[boot]
	if ok {
		f.tried = time.Now()
		p.failed[boot] = f
	}
	return ok
}

// noteFailed adds a member that failed. Of too many, the one that failed first is not tried any more. The lock is held.
func (p *pool) noteFailed(f failedMember) {
	if len(p.failed) >= maxFailed {
		delete(p.failed, slices.MinFunc(slices.Collect(maps.Values(p.failed)),
			func(a, b failedMember) int { return a.since.Compare(b.since) }).boot)
	}
	p.failed[f.boot] = f
}

// Members that this node knows, and that send it nothing, may not know this node: the news of its arrival was lost, or
// they have given it up. Contacting them takes seconds; memberlist would find it when it next compares lists.
const (
	greetEvery = 2 * time.Second
	maxGreet   = 3 // in a row: one that is dead, and not noticed yet, takes dialTimeout
)

func (p *pool) greet(ctx context.Context) {
	for sleep(ctx, jittered(greetEvery)) {
		for i, addr := range p.cluster.silent(p) {
			if i == maxGreet || ctx.Err() != nil {
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
	for i, h := range hosts {
		hosts[i] = net.JoinHostPort(h, port)
	}
	return hosts, nil
}
