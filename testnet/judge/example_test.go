package judge_test

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Two nodes that cannot reach each other admit ten each, under a limit of ten for both. They are two sides, so that is
// the ceiling; but one of them exports a bound of 40 %, and so has broken its word. After the heal both know all.
func Example() {
	at := func(ms int64) int64 { return int64(1e15) + ms*int64(time.Millisecond) }
	var run bytes.Buffer
	w, err := record.NewWriter(&run, record.Header{
		Started: at(0),
		Rule: record.Rule{
			Name: "per_client", Limit: 10, Window: 10 * time.Second, Sub: time.Second, Algorithm: "sliding_window",
		},
		Nodes: []record.Node{{ID: "us-east-1", Region: "us-east"}, {ID: "eu-west-1", Region: "eu-west"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func(e record.Entry) {
		if err := w.Write(e); err != nil {
			fmt.Println(err)
		}
	}
	observe := func(node string, ms int64, count uint64, bound float64) {
		write(record.Entry{Observation: &record.Observation{
			Sent: at(ms), Done: at(ms + 1), Node: node, Boot: "1", Bound: bound, Members: 1,
			Counts: map[string]uint64{"x": count}}})
	}
	observe("us-east-1", 500, 0, 0.02)
	write(record.Entry{Event: &record.Event{At: at(1000), Began: true, Name: record.Partition, Target: "eu-west"}})
	for i := range int64(11) {
		for node, region := range map[string]string{"us-east-1": "us-east", "eu-west-1": "eu-west"} {
			write(record.Entry{Decision: &record.Decision{
				Sent: at(
					2000 + i,
				), Done: at(2003 + i), Node: node, Region: region, Identity: "x", Cost: 1, Allowed: i < 10}})
		}
	}
	observe("us-east-1", 2500, 10, 0.4)
	write(record.Entry{Event: &record.Event{At: at(3000), Began: false, Name: record.Partition, Target: "eu-west"}})
	observe("us-east-1", 3200, 10, 0.4)
	observe("eu-west-1", 3300, 10, 0.4)
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}

	r, err := record.NewReader(&run)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := judge.Check(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := report.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// limit 10 per 10s and client, 2 nodes, 1 clients, 3.3 s
	//
	//               phase  from s  offered  admitted  oracle  failed    net %  over limit %  over oracle %  excess %  bound %  ceiling %  false rej.  p50 ms  p99 ms
	//            no fault     0.0        0         0       0       0    +0.00          0.00           0.00      0.00     2.00          -           0    0.00    0.00
	//   partition eu-west     1.0       22        20      10       0  +100.00        100.00         100.00    100.00    40.00     104.00           0    3.00    3.00
	//            no fault     3.0        0         0       0       0    +0.00        100.00         100.00      0.00    40.00     104.00           0    0.00    0.00
	//                 all     0.0       22        20      10       0  +100.00        100.00         100.00    100.00    40.00          -           0    3.00    3.00
	//
	// bound when no fault showed  2.00 %
	// agreed after the last request or fault  300 ms
	//
	// broken:
	//   I5        second 2, 1 times: admitted over the limit: expected at most the exported bound of 40.00 %, got 100.00 %
}
