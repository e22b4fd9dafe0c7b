// Command node is what the testnet's containers run: edgelimit with a worse WAN, because all their regions stand on one
// machine, and a shop for its proxies. Its serve and proxy delay and lose what they send to other regions, as
// --inject-wan-* say.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/cmd/edgelimit/app"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

const (
	delayFlag  = "inject-wan-delay"
	jitterFlag = "inject-wan-jitter"
	lossFlag   = "inject-wan-loss"

	category = "Fault injection (test networks only)"
)

func main() {
	os.Exit(app.Main(newApp()))
}

func newApp() *cli.App {
	a := app.New(faults())
	a.Commands = append(a.Commands, shopCommand(), installKeyCommand())
	return a
}

// faults adds the flags for delay, jitter and loss of the WAN to serve and proxy.
func faults() app.Extension {
	return app.Extension{Configure: injectFaults, Flags: []cli.Flag{
		&cli.DurationFlag{Name: delayFlag, Usage: "delay what the node sends to the WAN by `DURATION`, one way",
			Category: category, EnvVars: variable(delayFlag)},
		&cli.DurationFlag{Name: jitterFlag, Usage: "up to `DURATION` more, drawn for each packet",
			Category: category, EnvVars: variable(jitterFlag)},
		&cli.Float64Flag{Name: lossFlag, Usage: "lose this `PART` of the packets, 0 to 1",
			Category: category, EnvVars: variable(lossFlag)},
	}}
}

func variable(flag string) []string {
	return []string{"EDGELIMIT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

// injectFaults wraps the node's WAN transport as the flags ask, and logs a warning.
func injectFaults(c *cli.Context, cfg *node.Config) error {
	w := netem.Link{Latency: c.Duration(delayFlag), Jitter: c.Duration(jitterFlag), Loss: c.Float64(lossFlag)}
	if err := w.Validate(); err != nil {
		return fmt.Errorf("--inject-wan-delay, -jitter, -loss: %w", err)
	}
	if w == (netem.Link{}) {
		return nil
	}
	if cfg.Gossip.WAN == "" {
		return errors.New("--inject-wan-delay, -jitter, -loss: this node is not on the WAN; set --gossip-wan or " +
			"leave them out")
	}
	cfg.WrapTransport = w.OnWAN(rand.Uint64())
	cfg.Logger.Warn("FAULT INJECTION: this node delays and loses what it sends to the WAN; for test networks only",
		"delay", w.Latency, "jitter", w.Jitter, "loss", w.Loss)
	return nil
}
