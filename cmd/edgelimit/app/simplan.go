package app

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/plan"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// planning is the category of the flags of a plan.
const planning group = "To plan with --keys-total"

// planFlags set the load and the budget of a plan. runPlan reads the number of keys.
func planFlags(l *sim.Load, b *plan.Budget) []cli.Flag {
	return []cli.Flag{
		planning.flag("keys-total", "plan for `N` live keys, as in 10M, 250K or 5000: those that are asked for within "+
			"a window", new(string)),
		planning.flag("overlap", "percent of the keys that are seen in three regions; as many are seen by two nodes "+
			"of a region", &l.Overlap),
		planning.flag("requests", "requests a second for them at each node (0: one for each of its keys)", &l.Requests),
		planning.flag("new-keys", "new keys a second at each node beside them, which never come again", &l.New),
		planning.flag("bandwidth", "Mbit/s that a node may send, and receive", &b.Mbit),
		planning.flag("cpu", "percent of a core that it may use", &b.CPU),
		planning.flag("memory", "MiB that its counts may take: the setting memory of a node", &b.MiB),
	}
}

// notPlanned are the flags that a plan has no use for.
var notPlanned = []string{"pattern", "partition", "redis-fault", "beside", "burst", "burst-at", "duration", "duplicate",
	"reorder", "skew", "strategy", "algorithm", "on-partition", "trace", "plot"}

// runPlan plans for a load of many keys.
func runPlan(c *cli.Context, l sim.Load, b plan.Budget) error {
	for _, name := range notPlanned {
		if c.IsSet(name) {
			return fmt.Errorf("--%s does not go with --keys-total, which plans for a load of its own", name)
		}
	}
	var err error
	if l.KeysTotal, err = parseCount(c.String("keys-total")); err != nil {
		return err
	}
	if !c.IsSet("keys") {
		l.Keys = 0
	}
	l.Overlap /= 100
	if b.Mbit <= 0 || b.CPU <= 0 || b.MiB <= 0 {
		return fmt.Errorf("a budget of %g Mbit/s, %g %% of a core and %g MiB: want more than 0", b.Mbit, b.CPU, b.MiB)
	}
	r, err := plan.Compute(c.Context, l, b)
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		err = json.NewEncoder(c.App.Writer).Encode(r)
	default:
		err = r.Write(c.App.Writer)
	}
	return exitStatus(err, r.OK)
}

// parseCount reads a number with K, M or G.
func parseCount(text string) (int, error) {
	number, unit := text, 1.0
	for suffix, factor := range map[string]float64{"K": 1e3, "M": 1e6, "G": 1e9} {
		if before, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = before, factor
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*unit >= 0 && n*unit <= 1e12) {
		return 0, fmt.Errorf("--keys-total %q: want a number, as in 10M, 250K or 5000", text)
	}
	return int(n * unit), nil
}
