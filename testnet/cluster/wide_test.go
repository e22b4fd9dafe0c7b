package cluster

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A wide cluster has all that the compose file has, and of each further region what the pattern has, at addresses and
// ports of its own.
func TestWideCompose(t *testing.T) {
	b, err := os.ReadFile(composePath("../.."))
	ok(t, err)
	wide, err := wideCompose(string(b))
	ok(t, err)
	for line := range strings.Lines(string(b)) {
		changed := strings.Contains(line, "install-key, ") || strings.Contains(line, "interval: 5s")
		if !strings.Contains(wide, line) && !changed {
			t.Errorf("it lacks %s", line)
		}
	}
	count := func(what string, want int) {
		t.Helper()
		found := regexp.MustCompile(what).FindAllString(wide, -1)
		slices.Sort(found)
		if n := len(found); n != want || len(slices.Compact(found)) != want {
			t.Errorf("%d of %s, want %d different ones: %q", n, what, want, found)
		}
	}
	count(`(?m)^  [a-z]+-[a-z]+-[12]:$`, 20)
	count(`(?m)^  [a-z]+-[a-z]+-redis:$`, 10)
	count(`\{edgelimit.testnet.role: node, edgelimit.testnet.region: [a-z]+-[a-z]+\}(?s:.{0,400}?)KEY_FILE: \S+`, 20)
	count(`127.0.0.1:8[0-9]+:8080`, 23) // and three proxies
	count(`127.0.0.1:9[0-9]+:7948`, 23)
	count(`subnet: "[^"]+"`, 11) // and the WAN
	count(`LAN: \S+HOST_[A-Z]+_[A-Z]+_[12]:-\d+\}:7946`, 20)
	count(`EDGELIMIT_INTERVAL: 500ms`, 1)
	for _, name := range wideRegions {
		if !strings.Contains(wide, " "+name+"-2,") {
			t.Errorf("no key is installed for %s-2", name)
		}
	}
	if strings.Count(wide, "eu-west") != strings.Count(string(b), "eu-west") {
		t.Error("another region names the pattern")
	}
	for _, broken := range []string{"", strings.Replace(string(b), "  eu-west-redis:\n", "", 1),
		strings.Replace(string(b), "install-key, ", "install, ", 1)} {
		if _, err := wideCompose(broken); err == nil {
			t.Error("it is made of a compose file that lacks what it needs")
		}
	}
}

// Compose reads a wide cluster's file from its standard input; Down removes one, however it is called.
func TestWideClusterIsComposed(t *testing.T) {
	for _, wide := range []bool{true, false} {
		e, stdin := &fakeEngine{Images: []string{NodeImage, RedisImage}}, make(map[string]string)
		e.Compose = func(_ *fakeEngine, verb string, _ []string, c Command) {
			stdin[verb] = c.Stdin
			if (c.Stdin != "") != strings.Contains(c.String(), "--file - ") {
				t.Errorf("%s, with %d bytes to read", c, len(c.Stdin))
			}
		}
		c, err := Open(Options{Root: "../..", Run: e.Run, Wide: wide})
		ok(t, err)
		ok(t, c.composeUp(t.Context(), nil))
		ok(t, c.Down(t.Context()))
		if strings.Contains(stdin["up"], "ap-north-2:") != wide || !strings.Contains(stdin["down"], "ap-north-2:") {
			t.Errorf("wide %v: up reads %d bytes, down %d", wide, len(stdin["up"]), len(stdin["down"]))
		}
	}
}
