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

// sidecarReport is the cost of a node beside each server.
type sidecarReport struct {
	BinaryBytes int64          `json:"binary_bytes"` // its image holds nothing else
	Starts      []sidecarStart `json:"starts"`
	OK          bool           `json:"ok"` // below 25 MB, 300 ms and 40 MiB
}

// sidecarStart is how a node starts beside a Redis of one kind. The times are from the start of the process to the
// first answer of /readyz that says ready.
type sidecarStart struct {
	Redis       string  `json:"redis"`
	Runs        int     `json:"runs"`
	MedianMs    float64 `json:"ready_median_ms"`
	SlowestMs   float64 `json:"ready_slowest_ms"`
	ResidentMiB float64 `json:"resident_mib"` // the largest, a second after that, by its metrics
}

func sidecarCommand() *cli.Command {
	return &cli.Command{
		Name:  "sidecar",
		Usage: "measure what a node costs beside a server: size, start, memory when idle",
		Description: "Needs no containers. Starts the binary that 'make build' makes, again and again: without a\n" +
			"Redis, with one that is not there, and with one that takes connections and says nothing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "binary", Usage: "`FILE` to start", Value: "bin/edgelimit"},
			&cli.IntFlag{Name: "runs", Usage: "starts of each kind", Value: 10},
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c); err != nil {
				return err
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
					fmt.Fprintf(c.App.Writer, "%-22s ready after %4.0f ms, at most %4.0f ms; %4.1f MiB resident when "+
						"idle\n", s.Redis, s.MedianMs, s.SlowestMs, s.ResidentMiB)
				}
			}
			if err == nil && !r.OK {
				err = errors.New("want a binary below 25 MB, ready within 300 ms, below 40 MiB")
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
	r := &sidecarReport{BinaryBytes: file.Size(), OK: file.Size() < 25e6}
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
		slices.Sort(took)
		s.MedianMs, s.SlowestMs = float64(took[len(took)/2])/1e6, float64(took[len(took)-1])/1e6
		r.OK = r.OK && s.ResidentMiB < 40 && s.MedianMs < 300
		r.Starts = append(r.Starts, s)
	}
	return r, nil
}

// startSidecar starts a node, and stops it a second after it was ready.
func startSidecar(ctx context.Context, binary string, args []string) (
	ready time.Duration, residentMiB float64, err error,
) {
	p, err := abuse.Start(ctx, binary, os.Stderr, []string{"http"}, append(args, "--log-level", "error"))
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
