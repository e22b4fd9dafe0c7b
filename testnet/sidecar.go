package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/abuse"
	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// What a sidecar may cost.
const (
	maxBinaryBytes = 30_000_000
	maxReady       = 300 * time.Millisecond
	maxResidentMiB = 40
)

// sidecarReport is the cost of a proxy beside each server.
type sidecarReport struct {
	BinaryBytes int64          `json:"binary_bytes"` // its image holds nothing else
	Starts      []sidecarStart `json:"starts"`
	OK          bool           `json:"ok"` // at most what a sidecar may cost
}

// sidecarStart is how a proxy starts beside a Redis of one kind. The times are from the start of the process to the
// first answer of /readyz that says ready. The fastest is what it takes; what others took beyond that, the machine did.
type sidecarStart struct {
	Redis       string  `json:"redis"`
	Runs        int     `json:"runs"`
	FastestMs   float64 `json:"ready_fastest_ms"`
	SlowestMs   float64 `json:"ready_slowest_ms"`
	ResidentMiB float64 `json:"resident_mib"` // the largest, a second after that, by its metrics
}

func sidecarCommand() *cli.Command {
	return &cli.Command{
		Name:  "sidecar",
		Usage: "measure what a proxy costs beside a server: size, start, memory when idle",
		Description: "Needs no containers. Starts the binary that 'make build' makes as a proxy, again and again:\n" +
			"without a Redis, with one that is not there, and with one that takes connections and says nothing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "binary", Usage: "`FILE` to start", Value: "bin/edgelimit"},
			&cli.IntFlag{Name: "runs", Usage: "starts of each kind", Value: 5},
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c); err != nil {
				return err
			}
			if c.Int("runs") < 1 {
				return fmt.Errorf("--runs %d: want 1 or more", c.Int("runs"))
			}
			r, err := measureSidecar(c.Context, c.String("binary"), c.Int("runs"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, r)
			} else {
				fmt.Fprintf(c.App.Writer, "binary                 %5.1f MB\n", float64(r.BinaryBytes)/1e6)
				for _, s := range r.Starts {
					fmt.Fprintf(c.App.Writer, "%-22s ready after %4.0f to %4.0f ms; %4.1f MiB resident when idle\n",
						s.Redis, s.FastestMs, s.SlowestMs, s.ResidentMiB)
				}
			}
			if err == nil && !r.OK {
				err = fmt.Errorf("want a binary of at most %d MB, ready within %v, at most %d MiB",
					maxBinaryBytes/1_000_000, maxReady, maxResidentMiB)
			}
			return err
		},
	}
}

func measureSidecar(ctx context.Context, binary string, runs int) (*sidecarReport, error) {
	file, err := os.Stat(binary)
	if err != nil {
		return nil, fmt.Errorf("%w: run 'make build' first", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer silent.Close()
	r := &sidecarReport{BinaryBytes: file.Size(), OK: file.Size() <= maxBinaryBytes}
	for _, redis := range []struct {
		name string
		args []string
	}{
		{"no Redis", nil}, {"Redis is not there", []string{"--redis", "redis://127.0.0.1:1"}},
		{"Redis is silent", []string{"--redis", "redis://" + silent.Addr().String()}},
	} {
		s := sidecarStart{Redis: redis.name, Runs: runs}
		var took []time.Duration
		for range runs {
			t, resident, err := startSidecar(ctx, binary, redis.args)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", redis.name, err)
			}
			took, s.ResidentMiB = append(took, t), max(s.ResidentMiB, resident)
		}
		fastest := slices.Min(took)
		s.FastestMs, s.SlowestMs = float64(fastest)/1e6, float64(slices.Max(took))/1e6
		r.OK = r.OK && s.ResidentMiB <= maxResidentMiB && fastest <= maxReady
		r.Starts = append(r.Starts, s)
	}
	return r, nil
}

// startSidecar starts a proxy, and stops it a second after it was ready.
func startSidecar(ctx context.Context, binary string, args []string) (
	ready time.Duration, residentMiB float64, err error,
) {
	args = append([]string{"--upstream", "http://127.0.0.1:1", "--admin", "", "--log-level", "error"}, args...)
	p, err := abuse.Start(ctx, binary, os.Stderr, "proxy", []string{"listen"}, args)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	select {
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	case <-time.After(time.Second):
	}
	metrics, err := scrape.Get(ctx, http.DefaultClient, "http://"+p.Addr["health"]+"/metrics")
	return p.Ready, metrics.Sum("process_resident_memory_bytes") / (1 << 20), err
}
