package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A renamed file is left: later lines are in a new one. No line is lost.
func TestAccessLogIsRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.AccessLog = AccessLog{File: file, Format: JSON} },
		backend(t, func(http.ResponseWriter, *http.Request) {}))
	get(t, p.url+"/one")
	testkit.Must(t, os.Rename(file, file+".1"))
	testkit.Eventually(t, "there is a new file", func() bool { _, err := os.Stat(file); return err == nil })
	get(t, p.url+"/two")
	p.stop(testkit.Patience)
	for name, path := range map[string]string{file + ".1": "/one", file: "/two"} {
		if b, err := os.ReadFile(name); err != nil || strings.Count(string(b), "\n") != 1 ||
			!strings.Contains(string(b), path) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

// A log that cannot be written is a warning and a count, and holds nobody up.
func TestAccessLogFails(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.AccessLog.File = "/dev/full" },
		backend(t, func(http.ResponseWriter, *http.Request) {}))
	get(t, p.url)
	testkit.Eventually(t, "the failure is counted", func() bool { return p.Stats().LogErrors > 0 })
	if resp, _ := get(t, p.url); resp.StatusCode != 200 || !p.log.HasLine("access log cannot be written", "/dev/full") {
		t.Errorf("%s, %s", resp.Status, p.log)
	}
}

func TestLines(t *testing.T) {
	l := &logLine{Time: time.Unix(1_700_000_000, 0).UTC(), Client: "192.0.2.1", Host: "a", Method: "GET",
		URI: "/x\"\n?\xff", Proto: "HTTP/1.1", Status: 200, Bytes: 12, UserAgent: `a\b "c"`, Decision: "allow"}
	want := `192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "GET /x\x22\x0A?\xFF HTTP/1.1" 200 12 "-" "a\x5Cb \x22c\x22"`
	if got := string(appendCombined(nil, l)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := appendJSON(nil, l); bytes.ContainsAny(got, "\n") || !bytes.Contains(got, []byte(`"uri":"/x\"\n?`)) {
		t.Errorf("%s", got)
	}
}

// What the log says of requests: the client behind trusted proxies, the decision, the upstream.
func TestAccessLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	up := backend(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	l := &script{answer: func(req *rules.Request) []counters.Decision {
		if req.Descriptors[0][0].Value == "192.0.2.9" {
			return []counters.Decision{exhausted}
		}
		return []counters.Decision{plenty}
	}}
	p := open(t, l, func(c *Config, o *Options) {
		c.AccessLog.File, o.Requests.TrustedProxies = file, []string{"127.0.0.1"}
	}, up)
	get(t, p.url+"/a?b", "X-Forwarded-For", "192.0.2.1", "Referer", "http://r", "User-Agent", "ua", "Host", "shop")
	get(t, p.url+"/c", "X-Forwarded-For", "192.0.2.9")
	p.stop(testkit.Patience)
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	lines := strings.Split(string(b), "\n")
	slices.Sort(lines[:2]) // by time; a line is written when its request has ended
	for i, wants := range [][]string{
		{`"remote_addr":"192.0.2.1"`, `"host":"shop"`, `"method":"GET"`, `"uri":"/a?b"`, `"status":200`, `"bytes":5`,
			`"referer":"http://r"`, `"user_agent":"ua"`, `"upstream":"` + up + `"`, `"decision":"allow"`,
			`"rule":"burst"`},
		{`"remote_addr":"192.0.2.9"`, `"status":429`, `"decision":"deny"`},
	} {
		for _, want := range wants {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s lacks %s", lines[i], want)
			}
		}
	}
}
