package plan

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// Budget is what a node may use.
type Budget struct {
	Mbit float64 `json:"mbit_per_s"` // each way
	CPU  float64 `json:"cpu_pct"`    // of one core
	MiB  float64 `json:"memory_mib"`
}

// DefaultBudget leaves most of a small machine to its requests. The memory is a node's default.
func DefaultBudget() Budget { return Budget{Mbit: 100, CPU: 20, MiB: 256} }

// Cost is what a node needs for counting and replication, without the API through which requests come.
type Cost struct {
	MbitOut     float64 `json:"mbit_out"`
	MbitIn      float64 `json:"mbit_in"`
	MessagesOut float64 `json:"messages_out_per_s"`
	MessagesIn  float64 `json:"messages_in_per_s"`
	CPU         CPU     `json:"cpu_pct"`
	MiB         float64 `json:"memory_mib"`
	Origins     float64 `json:"origins"` // numbers for whose counts they are
}

// CPU is percents of one core.
type CPU struct {
	Decisions float64 `json:"decisions"`
	Sending   float64 `json:"sending"`
	Receiving float64 `json:"receiving"`
	Merging   float64 `json:"merging"` // and adding up
}

// Total is the sum of all.
func (c CPU) Total() float64 { return c.Decisions + c.Sending + c.Receiving + c.Merging }

// Sampled is what was simulated.
type Sampled struct {
	Nodes     int     `json:"nodes"`     // simulated
	StandIns  int     `json:"stand_ins"` // of them, those that stand for a region each
	OneIn     int     `json:"one_in"`    // one in so many keys
	Keys      int     `json:"keys"`      // so many
	HotKeys   int     `json:"hot_keys"`  // and so many of the hot ones
	Requests  int     `json:"requests"`
	WindowS   float64 `json:"window_s"` // of the simulation
	MeasuredS float64 `json:"measured_s"`
}

// Report is a plan.
type Report struct {
	Regions     int     `json:"regions"`
	Nodes       int     `json:"nodes"` // in each region
	KeysTotal   int     `json:"keys_total"`
	OverlapPct  float64 `json:"overlap_pct"`
	Requests    float64 `json:"requests_per_s"` // at a node
	New         float64 `json:"new_keys_per_s"` // at a node
	HotKeys     int     `json:"hot_keys"`
	Load        float64 `json:"load"` // of each hot key, in limits
	Limit       uint64  `json:"limit"`
	WindowS     float64 `json:"window_s"`
	IntervalMs  float64 `json:"interval_ms"`
	WANDelayMs  float64 `json:"wan_delay_ms"`
	LANDelayMs  float64 `json:"lan_delay_ms"`
	LossPct     float64 `json:"loss_pct"`
	Seed        uint64  `json:"seed"`
	Sampled     Sampled `json:"sampled"`
	Owners      bool    `json:"owners"`       // owners of keys add up; otherwise every node sends to every other one
	PropagateMs float64 `json:"propagate_ms"` // until a count is known in another region, on average, without loss

	Mean Cost `json:"mean_node"`
	// Busiest is the most that any node needs, of each by itself: one that owns more keys than others.
	Busiest Cost `json:"busiest_node"`
	// Mesh is what a node would need if every node sent to every other one.
	Mesh Cost `json:"mesh_node"`

	Budget Budget  `json:"budget"`
	Breaks []Break `json:"breaks"` // what the load may grow to, the scarcest first
	OK     bool    `json:"ok"`     // the budget is enough
}

// Compute plans for a load. Keys of the load's options are hot at every node.
func Compute(ctx context.Context, l sim.Load, b Budget) (*Report, error) {
	s, err := sim.TakeSample(ctx, l)
	if err != nil {
		return nil, err
	}
	return compute(&l, s, b), nil
}

func compute(l *sim.Load, s *sim.Sample, b Budget) *Report {
	m := model{Load: l, sample: s}
	r := &Report{
		Regions: l.Regions, Nodes: l.Nodes, KeysTotal: l.KeysTotal, OverlapPct: 100 * l.Overlap, Requests: l.Rate(),
		New: l.New, HotKeys: l.Keys, Load: l.Load, Limit: l.Limit, WindowS: l.Window.Seconds(),
		IntervalMs: millis(l.Interval),
		WANDelayMs: millis(l.WANDelay), LANDelayMs: millis(l.LANDelay), LossPct: 100 * l.Loss, Seed: l.Seed,
		Owners: s.HasOwners, PropagateMs: millis(m.propagates()), Budget: b,
		Sampled: Sampled{
			Nodes: s.Nodes, StandIns: s.StandIns, OneIn: s.OneIn, Keys: s.Keys, HotKeys: s.HotKeys,
			Requests: s.Requests, WindowS: s.Window.Seconds(), MeasuredS: s.Measured.Seconds(),
		},
	}
	r.Mesh = m.mesh(1)
	r.Mean, r.Busiest = r.Mesh, r.Mesh
	if s.HasOwners {
		r.Mean = m.mean(1)
		r.Busiest = m.most(1)
	}
	r.Breaks = m.breaks(b)
	r.OK = !slices.ContainsFunc(r.Breaks, func(b Break) bool { return b.Headroom < 1 })
	return r
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// propagates is how long a count takes to another region, on average: it waits for half an interval at each hop.
func (m *model) propagates() time.Duration {
	if m.sample.HasOwners {
		return 3*m.Interval/2 + m.WANDelay + 2*m.LANDelay
	}
	return m.Interval/2 + m.WANDelay
}

// Break is what of a node runs out as the load grows: all requests and keys in proportion.
type Break struct {
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Used   float64 `json:"used"` // of the busiest node
	Budget float64 `json:"budget"`
	// Headroom is the factor by which the load may grow until the budget is used up; below 1, it is exceeded already.
	// It is at most maxHeadroom.
	Headroom float64 `json:"headroom"`
}

const maxHeadroom = 1000

// breaks finds by how much the load may grow.
func (m *model) breaks(b Budget) []Break {
	resources := []struct {
		what, unit string
		budget     float64
		used       func(Cost) float64
	}{
		{"bandwidth", "Mbit/s", b.Mbit, func(c Cost) float64 { return max(c.MbitOut, c.MbitIn) }},
		{"CPU", "% of a core", b.CPU, func(c Cost) float64 { return c.CPU.Total() }},
		{"memory", "MiB", b.MiB, func(c Cost) float64 { return c.MiB }},
		// The queue overflows where a node stands still for a tenth of a second: a pause of the scheduler or a machine.
		{"receive queue", "messages/s", queueSize * 10, func(c Cost) float64 { return c.MessagesIn }},
		{"origins", "numbers", maxOrigins, func(c Cost) float64 { return c.Origins }},
	}
	var all []Break
	for _, r := range resources {
		worst := func(factor float64) float64 {
			if !m.sample.HasOwners {
				return r.used(m.mesh(factor))
			}
			return r.used(m.most(factor))
		}
		all = append(all, Break{r.what, r.unit, worst(1), r.budget, headroom(worst, r.budget)})
	}
	slices.SortStableFunc(all, func(a, b Break) int { return cmp.Compare(a.Headroom, b.Headroom) })
	return all
}

// headroom finds the factor at which what is used reaches the budget.
func headroom(used func(factor float64) float64, budget float64) float64 {
	low, high := 0.0, float64(maxHeadroom)
	if used(high) <= budget {
		return high
	}
	for high-low > 0.001*high {
		if mid := (low + high) / 2; used(mid) <= budget {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
