package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkRulesInRedis pushes rules to a node that waits for them, gives one identity a limit of its own, interrupts a
// push to a Redis that hangs, and starts the node again while Redis is away.
func checkRulesInRedis(t *testing.T, binary string) {
	redis, key, dir, door := regionstest.StartRedis(t), filepath.Join(t.TempDir(), "key"), t.TempDir(), free(t)
	runBinary(t, binary, "keygen", "--out", key).says(t, 0)
	url, config := "redis://"+redis.Addr(), written(t, "node.yaml", "rules_redis: {dir: "+dir+"}\n")
	serving := []string{"serve", "--config", config, "--rules", url, "--key-file", key, "--http", door, "--health", "",
		"--admin", ""}
	node := start(t, binary, serving...)
	eventually(t, "it waits",
		func() bool { return strings.Contains(node.said.String(), "waiting for the first rules") })
	runBinary(t, binary, "rules", "push", hourly(t, 100), "--redis", url).says(t, 0, "version 1 is published")
	left := func(identity, says string) func() bool {
		return func() bool {
			r := runBinary(t, binary, "check", "--url", "http://"+door, "--rule", "per_ip", "--identity", identity,
				"--peek", "--json")
			return strings.Contains(r.out, `"limit":`+says+",")
		}
	}
	eventually(t, "the rules are in force", left("192.0.2.1", "100"))
	runBinary(t, binary, "limits", "set", "per_ip", "192.0.2.1", "500/hour", "--redis", url, "--key-file", key).says(t,
		0, "its counts are kept")
	eventually(t, "the override is in force", left("192.0.2.1", "500"))
	if !left("192.0.2.2", "100")() {
		t.Error("another identity has another limit")
	}
	redis.Pause()
	push := start(t, binary, "rules", "push", hourly(t, 7), "--redis", url)
	testkit.Must(t, push.cmd.Process.Signal(os.Interrupt))
	if code := push.exit(t, patience); code == 0 {
		t.Errorf("an interrupted push exits with %d: %s", code, push.said.String())
	}
	redis.Kill()
	testkit.Must(t, node.cmd.Process.Signal(os.Interrupt))
	node.exit(t, time.Minute)
	again := start(t, binary, serving...)
	eventually(t, "the rules of the copy are in force", left("192.0.2.1", "500"))
	eventually(t, "the log says where the rules are from", func() bool {
		return strings.Contains(again.said.String(), "from the copy on disk")
	})
}
