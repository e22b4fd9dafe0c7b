package sim

import (
	"strings"
	"testing"
	"time"
)

// The plot of a run shows what the report counts: every second, and the partition with its sides.
func TestPlot(t *testing.T) {
	r := run(t, short(func(o *Options) {
		o.Partitions = []Partition{{A: 2, From: time.Second, Until: 2 * time.Second}}
	}))
	s := r.series()
	var offered, admitted, oracle float64
	for _, p := range s.Samples {
		offered, admitted, oracle = offered+p.Offered, admitted+p.Admitted, oracle+p.Oracle
	}
	if uint64(offered) != r.Offered || uint64(admitted) != r.Admitted || uint64(oracle) != r.OracleAdmitted {
		t.Errorf("offered %v, admitted %v, oracle %v in all seconds, the report has %d, %d, %d",
			offered, admitted, oracle, r.Offered, r.Admitted, r.OracleAdmitted)
	}
	if len(s.Partitions) != 1 || s.Partitions[0].Label != "partition 2/*" || s.Partitions[0].Until != 2*time.Second {
		t.Errorf("partitions %+v", s.Partitions)
	}
	var b strings.Builder
	if err := r.WritePlot(&b); err != nil || !strings.HasPrefix(b.String(), "<svg ") {
		t.Errorf("%v: %.40q", err, b.String())
	}
}
