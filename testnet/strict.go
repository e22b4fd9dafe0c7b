package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// The strict rules of compose/rules: their home region, their keys, by what happens without its Redis, and how many
// requests an hour each has.
const (
	strictHome   = "us-east"
	strictClosed = "contract"
	strictLocal  = "licence"
	strictLimit  = 100
)

// maxDenial is how long a node elsewhere may take to deny without the Redis: four times what its calls took before,
// which is strict.min_timeout (250 ms) here, and what this machine takes.
const maxDenial = time.Second

func strictCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "strict",
		Usage: "cut the home region of strict rules off: what closed and local ones do",
		Description: "All regions race for strict limits, before, during and after a partition of " +
			strictHome + ",\nwhose Redis decides. Meanwhile other regions deny what is closed, within\n" +
			"strict.max_timeout, and decide by themselves where the rule is local. Within a second of\n" +
			"the heal all is strict again, and no more than the limit has passed of what is closed.",
		Flags: []cli.Flag{patienceFlag(20 * time.Second)},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
			nodes, err := cl.Nodes(ctx)
			if err != nil {
				return "", err
			}
			s := strictOutage{faults: cl, patience: c.Duration("patience"), id: time.Now().UnixMilli()}
			for _, n := range cluster.WithoutSidecars(nodes) {
				if n.Region == strictHome {
					s.inside = append(s.inside, n.HTTP)
				} else {
					s.outside = append(s.outside, n.HTTP)
				}
			}
			r, err := s.play(ctx)
			return fmt.Sprintf("of %d closed requests an hour %d were admitted, by all regions and through the "+
				"partition; cut off, others denied within %d ms, and admitted %d of %d where the rule is local; all "+
				"was strict again %d ms after the heal", strictLimit, r.closed, r.denial.Milliseconds(), r.local,
				strictLimit, r.back.Milliseconds()), err
		}),
	}
}

// strictFaults is what it needs of the testnet.
type strictFaults interface {
	faults
	Redises(ctx context.Context) ([]cluster.Redis, error)
}

// strictOutage is the home region cut off.
type strictOutage struct {
	faults          strictFaults
	inside, outside []string // the nodes' URLs, without a path
	patience        time.Duration
	id              int64 // makes the clients unique
}

// strictResult is what was found: admitted requests of one client by rule, the longest denial for a failure, and the
// time from the heal until decisions were strict again.
type strictResult struct {
	closed, local int
	denial, back  time.Duration
}

// strictAnswer is what a node answers.
type strictAnswer struct {
	Allowed  bool `json:"allowed"`
	Degraded bool `json:"degraded"`
	took     time.Duration
}

// play cuts the home region off while clients of all regions race. All faults are healed when it returns.
func (s *strictOutage) play(ctx context.Context) (r strictResult, err error) {
	defer func() {
		if err != nil {
			mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, s.faults.Heal(mend))
		}
	}()
	everywhere := append(append([]string{}, s.inside...), s.outside...)
	got, _, err := s.race(ctx, everywhere, strictClosed, s.client(), 2*strictLimit)
	if err != nil || got != strictLimit {
		return r, errors.Join(err, fmt.Errorf("at first %d requests of %d were admitted", got, strictLimit))
	}
	throughout, local := s.client(), s.client()
	if r.closed, _, err = s.race(ctx, everywhere, strictClosed, throughout, strictLimit/4); err != nil {
		return r, err
	}
	if err = s.faults.Partition(ctx, strictHome, cluster.Both); err != nil {
		return r, err
	}
	if err = s.cutOff(ctx, &r, throughout, local); err != nil {
		return r, err
	}
	mended := make(chan error, 1)
	go func() { mended <- s.faults.Heal(ctx) }()
	healed, err := s.connected(ctx)
	if err == nil {
		err = s.awaitStrict(ctx)
	}
	r.back = time.Since(healed)
	if err = errors.Join(err, <-mended); err != nil {
		return r, err
	}
	after, _, err := s.race(ctx, everywhere, strictClosed, throughout, 2*strictLimit)
	if r.closed += after; err == nil && r.closed != strictLimit {
		err = fmt.Errorf("%d requests of %d were admitted before, in and after the partition", r.closed, strictLimit)
	}
	return r, err
}

// cutOff asks both sides of the partition.
func (s *strictOutage) cutOff(ctx context.Context, r *strictResult, throughout, local string) error {
	got, longest, err := s.race(ctx, s.outside, strictClosed, throughout, strictLimit/4)
	if r.denial = longest; err != nil || got > 0 || longest > maxDenial {
		return errors.Join(err, fmt.Errorf("cut off, %d closed requests were admitted, the slowest answer took %v",
			got, longest))
	}
	got, _, err = s.race(ctx, s.inside, strictClosed, throughout, strictLimit/4)
	if r.closed += got; err != nil || got == 0 {
		return errors.Join(err, fmt.Errorf("at home %d requests were admitted in the partition", got))
	}
	// Each node may admit a limit until it has received the others' counts: the bound.
	r.local, _, err = s.race(ctx, s.outside, strictLocal, local, 2*strictLimit)
	if err != nil || r.local == 0 || r.local > strictLimit*len(s.outside) {
		return errors.Join(err, fmt.Errorf("cut off, %d local requests of %d were admitted", r.local, strictLimit))
	}
	return nil
}

// client returns the name of a new client.
func (s *strictOutage) client() string {
	s.id++
	return strconv.FormatInt(s.id, 36)
}

// race asks nodes for so many requests of one client, each in turn, eight at a time.
func (s *strictOutage) race(ctx context.Context, nodes []string, key, client string, requests int) (
	admitted int, longest time.Duration, err error,
) {
	var mu sync.Mutex
	var all sync.WaitGroup
	next := 0
	for range 8 {
		all.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= requests || err != nil
				mu.Unlock()
				if stop {
					return
				}
				a, failed := s.ask(ctx, nodes[i%len(nodes)], key, client)
				mu.Lock()
				err = errors.Join(err, failed)
				if longest = max(longest, a.took); a.Allowed {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return admitted, longest, err
}

// ask sends one request.
func (s *strictOutage) ask(ctx context.Context, node, key, client string) (a strictAnswer, err error) {
	body, err := json.Marshal(map[string]any{"domain": "edge",
		"descriptors": [][]map[string]string{{{"key": key, "value": client}}}})
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, node+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", node, resp.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	a.took = time.Since(began)
	return a, err
}

// connected waits until the home's Redis is on the WAN, and returns when it was not yet.
func (s *strictOutage) connected(ctx context.Context) (before time.Time, err error) {
	for began := time.Now(); ctx.Err() == nil; {
		before = time.Now()
		redises, err := s.faults.Redises(ctx)
		if err != nil {
			return before, err
		}
		cut := false
		for _, r := range redises {
			cut = cut || r.Partitioned
		}
		if !cut {
			return before, nil
		}
		if time.Since(began) > s.patience {
			return before, errors.New("the Redis of " + strictHome + " does not come back on the WAN")
		}
	}
	return before, context.Cause(ctx)
}

// awaitStrict waits until every node decides strictly, with new clients.
func (s *strictOutage) awaitStrict(ctx context.Context) error {
	began := time.Now()
	for _, node := range s.outside {
		for {
			a, err := s.ask(ctx, node, strictClosed, s.client())
			if err != nil {
				return err
			}
			if a.Allowed && !a.Degraded {
				break
			}
			if time.Since(began) > s.patience {
				return fmt.Errorf("%s still decides without its store", node)
			}
		}
	}
	if took := time.Since(began); took > time.Second {
		return fmt.Errorf("decisions were strict again %v after the heal, want one second at most", took)
	}
	return nil
}
