package fleet

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// The rules of the load. What nodes count of a kept or a small client within the hour is exactly what was admitted.
const (
	hotRule, keptRule, smallRule = "hot", "kept", "small"

	hotLimit  = 200 // in hotWindow
	hotWindow = 10 * time.Second
	fullLimit = 1_000_000 // of the other rules: never reached

	// In Options.Dir. Nodes watch the folders of these files, which therefore have no logs.
	rulesFile, keyFile = "settings/rules.yaml", "settings/cluster.key"

	rulesText = `domain: fleet
descriptors:
  - key: hot
    rate_limit: {name: hot, window: 10s, requests_per_unit: 200}
  - key: kept
    rate_limit: {name: kept, unit: hour, requests_per_unit: 1000000}
  - key: small
    rate_limit: {name: small, unit: hour, requests_per_unit: 1000000}
`
)

// node is one of the fleet.
type node struct {
	name, region string
	number       int // over all regions
	http, health string
	lan, wan     string
	resp, grpc   string
	redis        string // its region's, host:port
	target       traffic.Target
}

// nodes returns all nodes, region by region, with their addresses.
func (o *Options) nodes() (all []node) {
	for r := range o.Regions {
		for i := range o.Nodes {
			n := node{region: fmt.Sprintf("r%d", r+1), number: len(all), redis: loopback(o.redisPort(r))}
			n.name = fmt.Sprintf("%s-%d", n.region, i+1)
			port := o.BasePort + n.number*PortsPerNode
			n.http, n.health, n.lan, n.wan = loopback(port), loopback(port+1), loopback(port+2), loopback(port+3)
			n.resp, n.grpc = loopback(port+4), loopback(port+5)
			n.target = traffic.Target{Node: n.name, Region: n.region, URL: "http://" + n.http,
				Health: "http://" + n.health}
			all = append(all, n)
		}
	}
	return all
}

// first reports whether a node is the first one of its region.
func (o *Options) first(number int) bool { return number%o.Nodes == 0 }

func (o *Options) redisPort(region int) int {
	return o.BasePort + o.Regions*o.Nodes*PortsPerNode + region
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// args returns the command line of a node. Its seeds are the first node of its region, on the LAN, and that of each
// region, on the WAN.
func (o *Options) args(n node, all []node) []string {
	args := []string{"serve", "--region", n.region, "--node-id", n.name, "--rules", filepath.Join(o.Dir, rulesFile),
		"--key-file", filepath.Join(o.Dir, keyFile), "--http", n.http, "--health", n.health, "--admin", "",
		"--resp", n.resp, "--grpc", n.grpc,
		"--gossip", n.lan, "--gossip-wan", n.wan, "--interval", o.Interval.String(), "--redis", "redis://" + n.redis,
		"--memory", "16MiB", "--inject-wan-delay", o.WAN.Latency.String(), "--inject-wan-jitter",
		o.WAN.Jitter.String(), "--inject-wan-loss", fmt.Sprint(o.WAN.Loss)}
	for _, seed := range all {
		if !o.first(seed.number) {
			continue
		}
		if seed.region == n.region {
			args = append(args, "--join", seed.lan)
		}
		args = append(args, "--join", "wan:"+seed.wan)
	}
	return args
}

// env returns what is added to the environment of a node: many of them share the machine.
func (o *Options) env() []string {
	return []string{fmt.Sprintf("GOMAXPROCS=%d", o.MaxProcs), fmt.Sprintf("GOMEMLIMIT=%dMiB", o.Memory)}
}

// roundTrip is the longest time that a packet takes across the WAN and back.
func (o *Options) roundTrip() time.Duration { return 2 * (o.WAN.Latency + o.WAN.Jitter) }

// Staleness that is allowed: three intervals, and across regions two round trips more.
func (o *Options) maxStaleness() (inRegion, across time.Duration) {
	return 3 * o.Interval, 3*o.Interval + 2*o.roundTrip()
}
