package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const webRules = `domain: web
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: %d}
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 10s, requests_per_unit: 1}
  - key: api_key
    rate_limit: {name: per_key, unit: minute, requests_per_unit: 1}
  - key: method
    rate_limit: {unlimited: true}
`

// webLog is six requests of one client in as many seconds, one of them for /login, and one of another.
func webLog() string {
	var b strings.Builder
	for i, path := range []string{"/", "/login?next=a", "/", "/", "/", "/"} {
		fmt.Fprintf(&b, "10.0.0.1 - - [17/May/2015:10:05:0%d +0000] \"GET %s HTTP/1.1\" 200 5 \"-\" \"x\"\n", i, path)
	}
	return b.String() + `{"ts":1431857107,"remote_addr":"10.0.0.2","method":"GET","uri":"/","key":"k1"}` + "\n"
}

func webFile(t *testing.T, limit int) string {
	return written(t, fmt.Sprintf("web%d.yaml", limit), fmt.Sprintf(webRules, limit))
}

func TestReplayText(t *testing.T) {
	log := written(t, "access.log", webLog()+"nonsense \x1b[2J\n")
	r := edgelimit(t, "replay", "--rules", webFile(t, 4), log)
	r.says(t, 0, "7 requests in 1 log, 2015-05-17 10:05:00 to 2015-05-17 10:05:07 UTC (7 s)", "left out: 1 of 8 lines",
		"access.log:8: ", `"nonsense \x1b[2J"`, "would be denied: 2 (28.57 %) of the requests",
		"per_ip (web/remote_address): 4 in 1 min, sliding_window",
		"requests 7, would be denied 2 (28.57 %); identities 2, denied 1",
		"most in 1 min: median 1, 90 % of them 6, 99 % 6, 99.9 % 6, all 6",
		"suggested: 8 in 1 min: what 99 % never exceed (6), and a quarter more; 0 identities asked for more",
		"    6         2       6     10.0.0.1\n", "    1         0       1     10.0.0.2\n",
		"login (web/path=/login/remote_address)", "not asked: no field is called api_key", "web/method: unlimited")
	if strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "newly") {
		t.Errorf("it says %q", r.out)
	}
}

func TestReplayJSON(t *testing.T) {
	args := []string{"replay", "--json", "--worst", "1", "--field", "api_key=key", "--rules", webFile(t, 4), "-"}
	got := edgelimitReading(t, t.Context(), strings.NewReader(webLog()), args...)
	got.says(t, 0)
	var r replay.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %q", err, got.out)
	}
	if r.Requests != 7 || r.Denied != 2 || len(r.Rules) != 4 || len(r.Rules[0].Worst) != 1 ||
		r.Rules[0].Worst[0].Name != "10.0.0.1" ||
		r.Rules[2].Requests != 1 || r.Rules[2].Worst[0].Name != "k1" ||
		r.Compared != nil {
		t.Errorf("%+v", r)
	}
	for _, key := range []string{`"first":"2015-05-17T10:05:00Z"`, `"first_malformed":[]`, `"failed_logs":[]`,
		`"p99_9":6`,
		`"identities_exceeding":0`, `"unlimited":true`} {
		got.says(t, 0, key)
	}
}

func TestReplayCompare(t *testing.T) {
	log := written(t, "access.log", webLog())
	r := edgelimit(t, "replay", "--compare", webFile(t, 5), webFile(t, 2), log)
	r.says(t, 0, "newly denied: 3 (42.86 %)", "no longer denied: 0", "denied by both: 1 (14.29 %)",
		"  newly denied: 3 requests, of 1 identity\n", "NEWLY DENIED",
		"\nThe old rules:\nwould be denied: 1 ", "NO LONGER DENIED")
	edgelimit(
		t, "replay", "--compare", "--json", webFile(t, 5), webFile(t, 2), log,
	).says(t, 0, `"newly_denied":3`, `"compared":{`)
}

// What a log holds cannot steer the terminal, neither in words nor in JSON.
func TestReplayIsSafeToLookAt(t *testing.T) {
	evil := "\x1b]0;x\a\u009b2J\u202e\x9b\x7f\t\U000e0001é"
	log := fmt.Sprintf("{\"ts\":1431857107,\"remote_addr\":%q}\n%s\n", "", evil)
	quoted, err := json.Marshal(evil)
	testkit.Must(t, err)
	log += fmt.Sprintf("{\"ts\":1431857107,\"remote_addr\":%s}\n", quoted)
	for _, args := range [][]string{{"replay"}, {"replay", "--json"}} {
		r := edgelimitReading(t, t.Context(), strings.NewReader(log), append(args, "-")...)
		r.says(t, 0, "é")
		for _, bad := range []string{"\x1b", "\a", "\u009b", "\u202e", "\x7f", "\t", "\U000e0001"} {
			if strings.Contains(r.out, bad) {
				t.Errorf("%v: it prints %q", args, bad)
			}
		}
		if strings.ToValidUTF8(r.out, "") != r.out {
			t.Errorf("%v: it prints what is not UTF-8", args)
		}
	}
	var back struct{ Rules []replay.RuleReport }
	r := edgelimitReading(t, t.Context(), strings.NewReader(log), "replay", "--json", "-")
	if err := json.Unmarshal([]byte(r.out), &back); err != nil ||
		back.Rules[0].Worst[0].Name != strings.ToValidUTF8(evil, "\ufffd") {
		t.Errorf("%v: %+v", err, back)
	}
}

func TestReplaySampleRules(t *testing.T) {
	r := edgelimitReading(t, t.Context(), strings.NewReader(webLog()), "replay", "-")
	r.says(t, 0, "using the sample rules", "per_ip (edge/remote_address)")
}

func TestReplayFlags(t *testing.T) {
	o := replay.DefaultOptions()
	var names []string
	err := parsed(t, func(c *cli.Context) (err error) {
		names, err = replayRules(c, &o)
		return err
	}, replayFlags(&o), "--rules", webFile(t, 3), "--domain", "web", "--descriptor", "path,remote_address",
		"--descriptor", "generic_key=a,method", "--field", "a=b.c", "--field", "d=e", "--format", "json",
		"--worst", "3", "x.log", "-")
	testkit.Must(t, err)
	if len(o.Rules.Rules()) != 4 || o.Domain != "web" || fmt.Sprint(o.Descriptors) != "[path,remote_address "+
		"generic_key=a,method]" ||
		fmt.Sprint(o.Fields) != "[a=b.c d=e]" || o.Format != replay.JSON || o.Worst != 3 || o.Old != nil ||
		fmt.Sprint(names) != "[x.log -]" {
		t.Errorf("%+v, %v", o, names)
	}
}

func TestReplayRefuses(t *testing.T) {
	good, log := webFile(t, 4), written(t, "access.log", webLog())
	bad := written(t, "bad.yaml", "domain: web\ndescriptors:\n  - kez: path\n")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"no log was given", "- is standard input"}},
		{[]string{"--rules", bad, log}, []string{"bad.yaml:3:", "kez"}},
		{[]string{"--rules", "no/such.yaml", log}, []string{"no/such.yaml"}},
		{[]string{"--rules", good, "no/such.log"}, []string{"no/such.log"}},
		{[]string{"--rules", good, t.TempDir()}, []string{"is a directory"}},
		{[]string{"--compare", good, log}, []string{"OLD NEW LOG..."}},
		{[]string{"--compare", "--rules", good, good, good, log}, []string{"leave --rules out"}},
		{[]string{"--compare", bad, "no/such.yaml", log}, []string{"bad.yaml:3:", "no/such.yaml"}},
		{[]string{"--rules", good, "--descriptor", "tenant", log}, []string{"no field is called", "tenant"}},
		{[]string{"--rules", good, "--format", "xml", log}, []string{"unknown format"}},
		{[]string{"--rules", good, written(t, "empty.log", "")}, []string{"the logs are empty"}},
	} {
		if r := edgelimit(t, append([]string{"replay"}, test.args...)...); r.out != "" {
			t.Errorf("%v: it prints %q", test.args, r.out)
		} else {
			r.says(t, 2, test.want...)
		}
	}
}

// A log that breaks off is reported on, and the status tells.
func TestReplayOfABrokenLog(t *testing.T) {
	broken := written(t, "broken.log.gz", "\x1f\x8bnonsense")
	r := edgelimit(t, "replay", "--rules", webFile(t, 4), written(t, "access.log", webLog()), broken)
	r.says(t, 2, "7 requests in 2 logs", "broken off: ", "broken.log.gz", "the report lacks the rest of")
}

// An interrupt is heard although nothing comes any more, and what came is reported on.
func TestReplayInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, webLog())
		for range 2 {
			_, _ = io.WriteString(out, "\n") // the second is taken once all before the first was read
		}
		cancel()
	}()
	r := edgelimitReading(t, ctx, in, "replay", "--rules", webFile(t, 4), "-")
	_ = out.Close() // lets go who still reads
	r.says(t, 0, "7 requests", "interrupted: this is what had been read")
}

func TestReplayProgress(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var out strings.Builder
		files := &logFiles{sized: true, read: 30, size: 120}
		at := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC).UnixNano()
		say := replayProgress(&out, files)
		if say(replay.Progress{Lines: 1, At: at}); out.Len() > 0 {
			t.Errorf("at once it says %q", out.String())
		}
		time.Sleep(progressInterval)
		say(replay.Progress{Lines: 1500, At: at})
		say(replay.Progress{Lines: 1600, At: at})
		time.Sleep(progressInterval)
		files.sized = false
		say(replay.Progress{Lines: 2048})
		want := "edgelimit: 1500 lines read (25 %), up to 2015-05-17 10:05:03\nedgelimit: 2048 lines read, none of " +
			"them a request yet\n"
		if out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}

// Files tell how much of them was read.
func TestReplayKnowsHowMuchThereIs(t *testing.T) {
	log := written(t, "access.log", webLog())
	err := parsed(t, func(c *cli.Context) error {
		logs, files, err := openLogs(c, []string{log, log})
		defer files.close()
		if err != nil {
			return err
		}
		for _, l := range logs {
			if _, err := io.Copy(io.Discard, l); err != nil {
				return err
			}
		}
		info, err := os.Stat(log)
		if err == nil && (!files.sized || files.read != 2*info.Size() || files.size != files.read) {
			t.Errorf("%+v, of twice %d bytes", files, info.Size())
		}
		return err
	}, nil)
	testkit.Must(t, err)
}
