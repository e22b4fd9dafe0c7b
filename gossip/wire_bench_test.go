//go:build linux

package gossip

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
)

// What an updated key costs a sender and a receiver, all told: from the drain of the one's table to the merge into the
// other's, with memberlist between them, encrypted, over real sockets. Each node is a process of its own, so that its
// CPU time is known.

// peerOf names the environment variable that makes the test binary a node of the benchmark: it holds the address of the
// sender.
const peerOf = "EDGELIMIT_BENCH_PEER_OF"

func TestMain(m *testing.M) {
	if seed := os.Getenv(peerOf); seed != "" {
		beReceiver(seed)
		return
	}
	os.Exit(m.Run())
}

// spent is what a receiver has done so far.
type spent struct {
	CPU   time.Duration
	Novel uint64          // updated keys that arrived
	Ages  []time.Duration // the worst of each interval since it was last asked, as the metric of staleness has them
}

// beReceiver is a node that tells what it has done for each line on its standard input, until that ends.
func beReceiver(seed string) {
	w, err := newWireNode(fmt.Sprint("receiver-", os.Getpid()), seed)
	if err != nil {
		panic(err)
	}
	stop := w.run()
	asked := make(chan bool)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			asked <- true
		}
		close(asked)
	}()
	out := json.NewEncoder(os.Stdout)
	ticker := time.NewTicker(DefaultInterval)
	for ages := []time.Duration(nil); ; {
		select {
		case <-ticker.C:
			for _, m := range w.cluster.Members() {
				if !m.Idle {
					ages = append(ages, m.Age)
				}
			}
		case _, more := <-asked:
			if !more {
				stop()
				return
			}
			if err := out.Encode(spent{cpuTime(syscall.RUSAGE_SELF), w.cluster.Stats().SlotsNovel, ages}); err != nil {
				panic(err)
			}
			ages = nil
		}
	}
}

// cpuTime is what a process or thread has used, of user and system time.
func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wireNode is a node with a region's usual configuration.
type wireNode struct {
	noOwners
	cluster *Cluster
	table   *counters.Table
	drained atomic.Uint64 // slots
	bytes   atomic.Uint64 // of all packets
	packets atomic.Uint64
	buffer  []counters.Slot
}

func newWireNode(id, seed string) (*wireNode, error) {
	cfg := Config{
		NodeID: id, Region: "eu-west-1", Incarnation: uint64(time.Now().UnixNano()),
		Interval: DefaultInterval, Label: DefaultLabel, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		LAN: &PoolConfig{Bind: "127.0.0.1:0"}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if seed != "" {
		cfg.LAN.Seeds = []string{seed}
	}
	w := &wireNode{table: counters.NewTable(counters.Config{Origin: cfg.self(), Memory: 256 << 20})}
	cfg.WrapTransport = func(_ string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		return &meteredTransport{t, w}
	}
	var err error
	w.cluster, err = NewCluster(cfg, w)
	return w, err
}

func (w *wireNode) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) int {
	return w.table.MergeRises(slots, now, rises)
}

func (w *wireNode) SetWatermark(o counters.Origin, watermark int64) {
	w.table.SetWatermark(o, watermark)
}
func (w *wireNode) SetSumWatermarks(s counters.Sum, of counters.PartitionSet, watermark int64) {
	w.table.SetSumWatermarks(s, of, watermark)
}
func (w *wireNode) SetCluster(peers int, horizon time.Duration)  { w.table.SetCluster(peers, horizon) }
func (w *wireNode) SetRegion(peers int, horizon time.Duration)   { w.table.SetRegion(peers, horizon) }
func (w *wireNode) SetMember(o counters.Origin, member bool)     { w.table.SetMember(o, member) }
func (w *wireNode) SetPlace(o counters.Origin, p counters.Place) { w.table.SetPlace(o, p) }
func (w *wireNode) EarlyFlush() <-chan struct{}                  { return w.table.EarlyFlush() }
func (w *wireNode) DrainEarly(now int64) counters.Drained        { return w.table.DrainEarly(now) }

func (w *wireNode) Snapshot(now int64, limit int) []counters.Slot {
	return w.table.Snapshot(now, limit)
}

func (w *wireNode) DrainDirty(now int64) counters.Drained {
	d := w.table.DrainInto(w.buffer, now)
	w.buffer = d.Slots
	w.drained.Add(uint64(len(d.Slots)))
	return d
}

func (w *wireNode) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.cluster.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}

// meteredTransport counts what is sent, as memberlist sends it.
type meteredTransport struct {
	memberlist.NodeAwareTransport
	node *wireNode
}

func (m *meteredTransport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	m.node.bytes.Add(uint64(len(b)))
	m.node.packets.Add(1)
	return m.NodeAwareTransport.WriteToAddress(b, a)
}

// receiver is a node in a process of its own.
type receiver struct {
	b   *testing.B
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startReceiver(b *testing.B, seed string) *receiver {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	r := &receiver{b: b, cmd: exec.Command(self)}
	r.cmd.Env = append(os.Environ(), peerOf+"="+seed)
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	r.out = json.NewDecoder(out)
	if err := r.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return r
}

func (r *receiver) stop() {
	_ = r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		r.b.Error(err)
	}
}

func (r *receiver) ask() (s spent) {
	r.b.Helper()
	if _, err := io.WriteString(r.in, "\n"); err != nil {
		r.b.Fatal(err)
	}
	if err := r.out.Decode(&s); err != nil {
		r.b.Fatal(err)
	}
	return s
}

// BenchmarkUpdatedKey measures an interval of 100 ms in which so many keys were asked for once, with one peer and with
// three. Requests themselves are not in the figures. Bytes are those of packets to one peer, without IP and UDP (28 a
// packet).
func BenchmarkUpdatedKey(b *testing.B) {
	for _, keys := range []int{1000, 10_000, 50_000} {
		for _, peers := range []int{1, 3} {
			b.Run(fmt.Sprintf("keys=%d/peers=%d", keys, peers), func(b *testing.B) { benchmarkWire(b, keys, peers) })
		}
	}
}

func benchmarkWire(b *testing.B, keys, peers int) {
	runtime.LockOSThread() // so that the time of this thread is that of the requests
	defer runtime.UnlockOSThread()
	sender, err := newWireNode("sender", "")
	if err != nil {
		b.Fatal(err)
	}
	defer sender.run()()
	receivers := make([]*receiver, peers)
	for i := range receivers {
		receivers[i] = startReceiver(b, sender.cluster.Addr(lan))
		defer receivers[i].stop()
	}
	for len(sender.cluster.Members()) < peers {
		time.Sleep(DefaultInterval)
	}
	limit, err := counters.NewLimit(counters.NewMeter("edge/per_client", counters.SlidingWindow, 10*time.Second),
		counters.MaxLimit)
	if err != nil {
		b.Fatal(err)
	}
	ticker := time.NewTicker(DefaultInterval)
	defer ticker.Stop()
	interval := func() {
		now := (<-ticker.C).UnixNano()
		for k := range keys {
			sender.table.Take(limit, counters.Key(k+1)*0x9e3779b97f4a7c15, 1+uint64(k)%16, now)
		}
	}
	for range 15 { // so that cells and sub-windows are there, and the peers have their snapshots
		interval()
	}
	time.Sleep(2 * DefaultInterval)
	before := wireTotals(sender, receivers)
	for b.Loop() {
		interval()
	}
	time.Sleep(2 * DefaultInterval)
	after := wireTotals(sender, receivers)

	sent := float64(after.sent-before.sent) * float64(peers)
	arrived := float64(after.arrived - before.arrived)
	sending, receiving := float64(after.sending-before.sending)/sent, float64(after.receiving-before.receiving)/arrived
	b.ReportMetric(sending, "send-ns/key")
	b.ReportMetric(receiving, "receive-ns/key")
	b.ReportMetric(sending+receiving, "cpu-ns/key")
	b.ReportMetric(float64(after.bytes-before.bytes)/sent, "B/key")
	b.ReportMetric(float64(after.packets-before.packets)/sent*1000, "packets/1000keys")
	b.ReportMetric(100*arrived/sent, "%arrived")
	slices.Sort(after.ages)
	b.ReportMetric(float64(after.ages[len(after.ages)*99/100].Milliseconds()), "staleness-p99-ms")
	b.ReportMetric(0, "ns/op") // an interval: it says nothing
}

// wireTotal is what all nodes have done so far.
type wireTotal struct {
	sent, arrived, bytes, packets uint64
	sending, receiving            time.Duration
	ages                          []time.Duration
}

func wireTotals(sender *wireNode, receivers []*receiver) wireTotal {
	t := wireTotal{sent: sender.drained.Load(), bytes: sender.bytes.Load(), packets: sender.packets.Load(),
		sending: cpuTime(syscall.RUSAGE_SELF) - cpuTime(rusageThread)}
	for _, r := range receivers {
		s := r.ask()
		t.arrived += s.Novel
		t.receiving += s.CPU
		t.ages = append(t.ages, s.Ages...)
	}
	return t
}

// rusageThread is RUSAGE_THREAD of getrusage(2).
const rusageThread = 1
