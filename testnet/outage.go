package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// The routes of compose/proxy.yaml, by what happens there in an outage, and how many requests an hour each of their
// visitors has.
var outageRoutes = [3]string{"/pay", "/feed", "/page"} // closed, open, local

const visits = 30

func outageCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "outage",
		Usage:     "take a region's Redis away, then its peers: what closed, open and local routes do",
		ArgsUsage: "REGION",
		Description: "Needs 'go run ./testnet up --with sidecar'. Without its Redis the region's proxy admits what\n" +
			"it did before. Cut off as well, it denies payments (closed), lets the feed pass (open), and\n" +
			"decides on pages alone (local), while the proxies of other regions go on with their part of\n" +
			"the limit. After the heal all admit what they did at first.",
		Flags: []cli.Flag{patienceFlag(10 * time.Second)},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
			sidecars, err := sidecarsOf(ctx, cl)
			if err != nil {
				return "", err
			}
			o := outage{faults: cl, region: c.Args().First(), patience: c.Duration("patience"),
				id: time.Now().UnixMilli()}
			for _, n := range sidecars {
				if n.Region == o.region {
					o.inside = n.HTTP
				} else {
					o.outside = n.HTTP
				}
			}
			if o.inside == "" || o.outside == "" {
				return "", fmt.Errorf("no proxy is up in %q, or in no other region: go run ./testnet list", o.region)
			}
			took, err := o.play(ctx)
			return fmt.Sprintf("without its Redis %s admitted as before; cut off as well it denied payments, let the "+
				"feed pass and decided on pages alone; all were as before %d ms after the heal", o.region,
				took.Milliseconds()), err
		}),
	}
}

// faults is what an outage needs of the testnet.
type faults interface {
	Partition(ctx context.Context, region string, way cluster.Direction) error
	Heal(ctx context.Context) error
	Pause(ctx context.Context, name string) error
	Unpause(ctx context.Context, name string) error
	Nodes(ctx context.Context) ([]cluster.Node, error)
}

// outage is a region whose Redis is away, and then its peers.
type outage struct {
	faults
	region          string
	inside, outside string // the proxies' URLs, without a path
	patience        time.Duration
	id              int64 // makes the visitors unique
}

// admitted is how many requests of a new visitor each route admits.
type admitted [len(outageRoutes)]int

// play returns how long after the heal all proxies admitted again what they did at first. All faults are healed when it
// returns.
func (o *outage) play(ctx context.Context) (took time.Duration, err error) {
	part := func(n int) bool { return n > 0 && n <= visits }
	redis := cluster.RedisName(o.region)
	defer func() {
		if err != nil {
			mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, o.Unpause(mend, redis), o.Heal(mend))
		}
	}()
	if err = o.checkAll(ctx, "at first"); err != nil {
		return 0, err
	}
	if err = o.Pause(ctx, redis); err != nil {
		return 0, err
	}
	if err = o.checkAll(ctx, "without Redis"); err != nil {
		return 0, err
	}
	if err = o.Partition(ctx, o.region, cluster.Both); err != nil {
		return 0, err
	}
	if err = errors.Join(
		o.check(ctx, "cut off", o.inside, func(a admitted) bool {
			return a[0] == 0 && a[1] == visits+1 && part(a[2])
		}),
		o.check(ctx, "without the region", o.outside, func(a admitted) bool {
			return part(a[0]) && part(a[1]) && part(a[2])
		}),
	); err != nil {
		return 0, err
	}
	if err = o.Unpause(ctx, redis); err != nil {
		return 0, err
	}
	mended := make(chan error, 1)
	go func() { mended <- o.Heal(ctx) }()
	healed, err := o.connected(ctx)
	if err == nil {
		err = o.checkAll(ctx, "after the heal")
	}
	took = time.Since(healed)
	return took, errors.Join(err, <-mended)
}

// connected waits until all nodes are on the WAN, and returns when they were not yet.
func (o *outage) connected(ctx context.Context) (before time.Time, err error) {
	for ctx.Err() == nil {
		before = time.Now()
		nodes, err := o.Nodes(ctx)
		if err != nil || !slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.Partitioned }) {
			return before, err
		}
	}
	return before, context.Cause(ctx)
}

// checkAll checks that both proxies admit all that there is.
func (o *outage) checkAll(ctx context.Context, what string) error {
	whole := func(a admitted) bool { return a == admitted{visits, visits, visits} }
	return errors.Join(o.check(ctx, what, o.inside, whole), o.check(ctx, what, o.outside, whole))
}

// check asks a proxy until what it admits holds, with new visitors each time.
func (o *outage) check(ctx context.Context, what, proxy string, holds func(admitted) bool) error {
	for began := time.Now(); ; {
		got, err := o.ask(ctx, proxy)
		if err != nil || holds(got) {
			return err
		}
		if time.Since(began) > o.patience || ctx.Err() != nil {
			return fmt.Errorf("%s: %s admits %v of %d requests to %v", what, proxy, got, visits+1, outageRoutes)
		}
	}
}

func (o *outage) ask(ctx context.Context, proxy string) (got admitted, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for i, route := range outageRoutes {
		o.id++
		for range visits + 1 {
			target := proxy + route + "?visitor=" + strconv.FormatInt(o.id, 36)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
			if err != nil {
				return got, err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return got, err
			}
			if err := resp.Body.Close(); err != nil {
				return got, err
			}
			switch resp.StatusCode {
			case http.StatusOK:
				got[i]++
			case http.StatusTooManyRequests:
			default:
				return got, fmt.Errorf("%s answers %s", target, resp.Status)
			}
		}
	}
	return got, nil
}
