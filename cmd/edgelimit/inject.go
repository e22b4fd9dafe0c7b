package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/weather"
)

// injectFlags make the WAN worse than it is. They are for test networks, where all regions stand on one machine.
func injectFlags() []cli.Flag {
	const category = "Fault injection (test networks only)"
	return []cli.Flag{
		&cli.DurationFlag{Name: "inject-wan-delay", Usage: "delay what the node sends to the WAN by `DURATION`, one way", Category: category, EnvVars: env("INJECT_WAN_DELAY")},
		&cli.DurationFlag{Name: "inject-wan-jitter", Usage: "up to `DURATION` more, drawn for each packet", Category: category, EnvVars: env("INJECT_WAN_JITTER")},
		&cli.Float64Flag{Name: "inject-wan-loss", Usage: "lose this `PART` of the packets, 0 to 1", Category: category, EnvVars: env("INJECT_WAN_LOSS")},
	}
}

// injectFaults puts the weather that the flags ask for before the node's WAN, and says so loudly.
func injectFaults(c *cli.Context, cfg *node.Config, logger *slog.Logger) error {
	w := weather.WAN{Delay: c.Duration("inject-wan-delay"), Jitter: c.Duration("inject-wan-jitter"), Loss: c.Float64("inject-wan-loss")}
	if err := w.Validate(); err != nil {
		return fmt.Errorf("--inject-wan-delay, -jitter, -loss: %w", err)
	}
	if w.Calm() {
		return nil
	}
	if cfg.Gossip.WAN == "" {
		return errors.New("--inject-wan-delay, -jitter, -loss: this node is not on the WAN; set --gossip-wan or leave them out")
	}
	cfg.WrapTransport = w.Transport(rand.Uint64())
	logger.Warn("FAULT INJECTION: this node delays and loses what it sends to the WAN; for test networks only",
		"delay", w.Delay, "jitter", w.Jitter, "loss", w.Loss)
	return nil
}
