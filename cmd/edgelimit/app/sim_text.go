package app

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// printSim prints a report as a table.
func printSim(out io.Writer, r *sim.Report) error {
	fmt.Fprintf(out, "edgelimit sim: %d regions of %d nodes, a limit of %d per %gs and client, %s;\n",
		r.Regions, r.Nodes, r.Limit, r.WindowSeconds, r.Algorithm)
	fmt.Fprintf(out, "%s at %g times the limit for %gs, clients: %d%s; gossip every %g ms;\n", r.Pattern, r.Load,
		r.Seconds, r.Keys, compliantLine(r), r.IntervalMillis)
	fmt.Fprintf(out, "one way %g ms between regions and %g ms inside, %g %% loss%s; seed %d.\n\n",
		r.WANDelayMillis, r.LANDelayMillis, r.Loss*100, simFaults(r), r.Seed)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "offered\t%d requests\n", r.Offered)
	if r.Failed > 0 {
		fmt.Fprintf(w, "not answered\t%d\n", r.Failed)
	}
	fmt.Fprintf(w, "admitted\t%d; the oracle would have admitted %d\n", r.Admitted, r.OracleAdmitted)
	fmt.Fprintf(w, "net over-admission\t%+.2f %% (%s)\n", r.NetPct, settled(r, r.SettledNetPct))
	fmt.Fprintf(w, "peak over-admission\t%+.2f %% of the limit in the worst window (%s)\n", r.PeakPct,
		settled(r, r.SettledPeakPct))
	fmt.Fprintf(w, "bound\t%.2f %% at worst, %s\n", r.BoundPct, observed(r))
	fmt.Fprintf(w, "false rejections\t%s\n", falseRejections(r.Fairness))
	fmt.Fprintf(w, "staleness\tmedian %.0f ms, 99th percentile %.0f ms\n", r.StalenessP50Millis, r.StalenessP99Millis)
	if len(r.Partitions) > 0 {
		fmt.Fprintf(w, "healed\t%s\n", after(int64(r.HealMillis), "every node knew all counts again"))
	}
	if r.Redis != nil {
		fmt.Fprintf(w, "Redis\t%s\n", redis(r.Redis))
	}
	fmt.Fprintf(w, "after the last request\t%s\n", after(int64(r.AgreeMillis), "all nodes held the same counts"))
	fmt.Fprintf(w, "each node sends\t%.1f messages/s, %.1f kB/s\n", r.MessagesPerNode, r.BytesPerNode/1000)
	if err := w.Flush(); err != nil {
		return err
	}
	if r.OK {
		_, err := fmt.Fprintln(out, "\nok: over-admission stayed within the nodes' bound")
		return err
	}
	_, err := fmt.Fprintln(out, "\nNOT ok:\n - "+strings.Join(r.Wrong, "\n - "))
	return err
}

func compliantLine(r *sim.Report) string {
	if r.Compliant == 0 {
		return ""
	}
	return fmt.Sprintf(", and beside them %d at 95 %% of the limit", r.Compliant)
}

func simFaults(r *sim.Report) string {
	var faults string
	if r.Duplicate > 0 {
		faults += fmt.Sprintf(", %g %% twice", r.Duplicate*100)
	}
	if r.Reorder > 0 {
		faults += fmt.Sprintf(", %g %% held back", r.Reorder*100)
	}
	if r.SkewMillis > 0 {
		faults += fmt.Sprintf(", clocks up to %g ms wrong", r.SkewMillis)
	}
	if len(r.Partitions) > 0 {
		faults += ", partitions " + strings.Join(r.Partitions, " ")
	}
	if r.Redis != nil {
		faults += ", Redis " + strings.Join(r.Redis.Faults, " ")
	}
	return faults
}

func redis(r *sim.StoreReport) string {
	repaired := fmt.Sprintf("whole again after %.0f ms and %d flushes at most", r.RepairMillis, r.RepairFlushes)
	if r.RepairFlushes < 0 {
		repaired = fmt.Sprintf("NOT whole after two flushes, %d counts missing", r.SlotsMissing)
	}
	return fmt.Sprintf("lost %d counts; %s; %d of %d calls failed", r.SlotsLost, repaired, r.Failed, r.Calls)
}

// settled tells a figure that has nothing of the first window, if the run was long enough for one.
func settled(r *sim.Report, pct float64) string {
	if r.Seconds <= 2*r.WindowSeconds {
		return "the first window included"
	}
	return fmt.Sprintf("without the first window %+.2f %%", pct)
}

func observed(r *sim.Report) string {
	if r.ObservedPct <= 0 {
		return "the count of what was admitted never exceeded the limit"
	}
	held := "held at every moment"
	if !r.BoundHeld {
		held = "did NOT hold"
	}
	return fmt.Sprintf("%s; %.2f %% observed, a factor of %.1f", held, r.ObservedPct, r.BoundRatio)
}

func falseRejections(f judge.Fairness) string {
	if f.CompliantClients == 0 {
		return "no client kept to 95 % of its limit"
	}
	return fmt.Sprintf("%d of %d requests of clients within 95 %% of the limit", f.FalseRejections, f.CompliantOffered)
}
