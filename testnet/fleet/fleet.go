package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	product "github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/scrape"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// fleet is the processes of a run.
type fleet struct {
	opt    *Options
	nodes  []node
	client *http.Client
	began  time.Time

	mu        sync.Mutex // of procs, which restarts change
	procs     []*process // of the nodes
	redises   []*process
	away      []sync.RWMutex // one a node: held while it restarts, and for reading by each request to it
	discarded usage          // of processes that have ended: CPU of all, the most memory of any
}

// readyTimeout is how long a node may take to be ready, and the fleet to be complete.
const readyTimeout = 3 * time.Minute

// startTogether is how many nodes start at the same time.
const startTogether = 4

// open starts all Redis, then all nodes, and waits until each node sees every other one.
func open(ctx context.Context, o *Options) (_ *fleet, err error) {
	f := &fleet{opt: o, nodes: o.nodes(), client: traffic.NewClient(4), began: time.Now()}
	f.procs, f.away = make([]*process, len(f.nodes)), make([]sync.RWMutex, len(f.nodes))
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	if err := f.writeSettings(); err != nil {
		return nil, err
	}
	for r := range o.Regions {
		p, err := launch(o.Dir, fmt.Sprintf("redis-r%d", r+1), "redis-server", []string{"--bind", "127.0.0.1", "--port",
			fmt.Sprint(o.redisPort(r)), "--save", "", "--appendonly", "no", "--maxmemory", "64mb"}, nil)
		if err != nil {
			return nil, fmt.Errorf("a region's Redis (apt-get install redis-server): %w", err)
		}
		f.redises = append(f.redises, p)
	}
	if err := f.startAll(ctx); err != nil {
		return nil, err
	}
	return f, f.awaitComplete(ctx)
}

func (f *fleet) log(format string, args ...any) {
	if f.opt.Progress != nil {
		fmt.Fprintf(f.opt.Progress, "%5.1f s  "+format+"\n", append([]any{time.Since(f.began).Seconds()}, args...)...)
	}
}

// writeSettings writes the rules and the key file.
func (f *fleet) writeSettings() error {
	rules := filepath.Join(f.opt.Dir, rulesFile)
	if err := os.MkdirAll(filepath.Dir(rules), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(rules, []byte(rulesText), 0o644); err != nil {
		return err
	}
	key, err := os.OpenFile(filepath.Join(f.opt.Dir, keyFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(product.WriteKeyFile(key), key.Close())
}

// startAll starts the first node of each region, at the same time, and then all that join them, a few at a time.
func (f *fleet) startAll(ctx context.Context) error {
	errs := make([]error, len(f.nodes))
	start := func(together int, mine func(i int) bool) error {
		slots := make(chan struct{}, together)
		var starting sync.WaitGroup
		for i := range f.nodes {
			if !mine(i) {
				continue
			}
			slots <- struct{}{}
			starting.Go(func() {
				errs[i] = f.start(ctx, i)
				<-slots
			})
			if (i+1)%f.opt.Nodes == 0 {
				f.log("%d of %d nodes are started", i+1, len(f.nodes))
			}
		}
		starting.Wait()
		return errors.Join(errs...)
	}
	if err := start(f.opt.Regions, f.opt.first); err != nil {
		return err
	}
	return start(startTogether, func(i int) bool { return !f.opt.first(i) })
}

// start starts a node and waits until it is ready.
func (f *fleet) start(ctx context.Context, i int) error {
	n := f.nodes[i]
	p, err := launch(f.opt.Dir, n.name, f.opt.Program, f.opt.args(n, f.nodes), f.opt.env())
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.procs[i] = p
	f.mu.Unlock()
	why := errors.New("no answer")
	return await(ctx, readyTimeout, func() (bool, error) {
		if err := p.exited(); err != nil {
			return false, fmt.Errorf("%w: %w", errFatal, err)
		}
		text, err := scrape.NotReady(ctx, f.client, n.target.Health)
		if err == nil && text != "" {
			err = errors.New(text)
		}
		if err != nil {
			why = err
		}
		return err == nil, fmt.Errorf("%s is not ready: %w", n.name, why)
	})
}

// errFatal says that waiting is in vain.
var errFatal = errors.New("it cannot be any more")

// await polls until done. When the patience is over, the error is the last problem.
func await(ctx context.Context, patience time.Duration, poll func() (done bool, problem error)) error {
	return awaitEvery(ctx, 20*time.Millisecond, patience, poll)
}

func awaitEvery(ctx context.Context, every, patience time.Duration, poll func() (done bool, problem error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for began := time.Now(); ; {
		done, problem := poll()
		switch {
		case done:
			return nil
		case errors.Is(problem, errFatal), time.Since(began) > patience:
			return problem
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), problem)
		case <-ticker.C:
		}
	}
}

// awaitComplete waits until every node sees every other one.
func (f *fleet) awaitComplete(ctx context.Context) error {
	next := 0 // those before it see all
	return await(ctx, readyTimeout, func() (bool, error) {
		m, err := scrape.Get(ctx, f.client, f.nodes[next].target.Health+"/metrics")
		if err != nil {
			return false, err
		}
		if members := int(m.Sum("edgelimit_members")); members != len(f.nodes)-1 {
			return false, fmt.Errorf("%s sees %d of %d others", f.nodes[next].name, members, len(f.nodes)-1)
		}
		next++
		return next == len(f.nodes), nil
	})
}

// restart ends a node in order and starts it again. It calls ended in between.
func (f *fleet) restart(ctx context.Context, i int, ended func()) error {
	f.away[i].Lock() // once what was sent is answered, as behind a load balancer
	defer f.away[i].Unlock()
	f.mu.Lock()
	p := f.procs[i]
	f.mu.Unlock()
	u, err := readUsage(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.discarded.cpu += u.cpu
	f.discarded.resident = max(f.discarded.resident, u.resident)
	f.mu.Unlock()
	if err := p.stop(ctx); err != nil {
		return err
	}
	ended()
	return f.start(ctx, i)
}

// isAway reports whether a node is restarting.
func (f *fleet) isAway(i int) bool {
	if !f.away[i].TryRLock() {
		return true
	}
	f.away[i].RUnlock()
	return false
}

// usages returns what each running node has used.
func (f *fleet) usages() (all []usage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.procs {
		u, failed := readUsage(p.cmd.Process.Pid)
		all, err = append(all, u), errors.Join(err, failed)
	}
	return all, err
}

// close ends all nodes in order, at the same time, then all Redis.
func (f *fleet) close(ctx context.Context) error {
	errs := make([]error, len(f.procs)+len(f.redises))
	var ending sync.WaitGroup
	for i, p := range f.procs {
		ending.Go(func() { errs[i] = p.stop(ctx) })
	}
	ending.Wait()
	for i, p := range f.redises {
		errs[len(f.procs)+i] = p.stop(ctx)
	}
	f.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// kill ends what runs at once.
func (f *fleet) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range append(f.procs, f.redises...) {
		if p != nil {
			p.kill()
		}
	}
	f.client.CloseIdleConnections()
}
