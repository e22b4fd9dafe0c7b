package bans

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// once brings an export up to date.
func (e *Exporter) mustOnce(t testing.TB) {
	t.Helper()
	if _, err := e.once(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.Must(t, err)
	return string(b)
}

func TestFormats(t *testing.T) {
	b := newBanned(t)
	b.ban(t, "192.0.2.7/32", "", time.Minute)
	b.ban(t, "198.51.100.0/24", "scanner", time.Hour)
	b.ban(t, "198.51.100.9/32", "", time.Minute) // within
	b.ban(t, "2001:db8::/64", "", 1500*time.Millisecond)
	secret := named(t, banname.Name{Rule: "r", Keys: banname.ManualKeys, Reason: "of a key"}, time.Minute)
	b.Table.Ban(secret, 77, start)
	b.Update()
	for format, want := range map[string]string{
		"haproxy": "2001:db8::/64\n192.0.2.7\n198.51.100.0/24\n",
		"nginx":   "deny 2001:db8::/64;\ndeny 192.0.2.7;\ndeny 198.51.100.0/24;\n",
		"nftables": "add table inet edgelimit\n" +
			"add set inet edgelimit banned_v4 { type ipv4_addr; flags timeout; }\n" +
			"flush set inet edgelimit banned_v4\n" +
			"add set inet edgelimit banned_v6 { type ipv6_addr; flags timeout; }\n" +
			"flush set inet edgelimit banned_v6\n" +
			"add set inet edgelimit banned_v4_net { type ipv4_addr; flags interval, timeout; }\n" +
			"flush set inet edgelimit banned_v4_net\n" +
			"add set inet edgelimit banned_v6_net { type ipv6_addr; flags interval, timeout; }\n" +
			"flush set inet edgelimit banned_v6_net\n" +
			"add element inet edgelimit banned_v6 { 2001:db8:: timeout 1s501ms }\n" +
			"add element inet edgelimit banned_v4 { 192.0.2.7 timeout 60s1ms }\n" +
			"add element inet edgelimit banned_v4_net { 198.51.100.0/24 timeout 3600s1ms }\n",
		"ipset": "create edgelimit_v4 hash:net family inet maxelem 2097152 timeout 0 -exist\n" +
			"create edgelimit_v4_n hash:net family inet maxelem 2097152 timeout 0 -exist\nflush edgelimit_v4_n\n" +
			"add edgelimit_v4_n 192.0.2.7 timeout 61 -exist\nadd edgelimit_v4_n 198.51.100.0/24 timeout 3601 -exist\n" +
			"swap edgelimit_v4_n edgelimit_v4\ndestroy edgelimit_v4_n\n" +
			"create edgelimit_v6 hash:net family inet6 maxelem 2097152 timeout 0 -exist\n" +
			"create edgelimit_v6_n hash:net family inet6 maxelem 2097152 timeout 0 -exist\nflush edgelimit_v6_n\n" +
			"add edgelimit_v6_n 2001:db8::/64 timeout 2 -exist\n" +
			"swap edgelimit_v6_n edgelimit_v6\ndestroy edgelimit_v6_n\n",
	} {
		file := filepath.Join(t.TempDir(), format)
		NewExporter(Export{Format: format, File: file}, b.Registry, always, discard).mustOnce(t)
		header, rest, _ := strings.Cut(content(t, file), "\n")
		if !strings.HasPrefix(header, "# Banned addresses, written by edgelimit") || rest != want {
			t.Errorf("%s:\n%s%s", format, header, rest)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: %v, %v", format, info.Mode(), err)
		}
	}
	file := filepath.Join(t.TempDir(), "json")
	NewExporter(Export{Format: "json", File: file}, b.Registry, always, discard).mustOnce(t)
	var records struct{ Bans []Ban }
	if err := json.Unmarshal([]byte(content(t, file)), &records); err != nil || len(records.Bans) != 4 {
		t.Errorf("json has %+v, %v", records, err)
	}
	for _, r := range records.Bans {
		if r.Address == "198.51.100.0/24" && (r.Reason != "scanner" || !r.Manual || r.By != "alice") || r.Key != "" {
			t.Errorf("json has %+v", r)
		}
	}
}

// A file is written when it would differ, at once, and not otherwise; and anew if somebody takes it away.
func TestFilesChangeWithBans(t *testing.T) {
	b, file := newBanned(t), filepath.Join(t.TempDir(), "deny")
	e := NewExporter(Export{Format: "nginx", File: file, Rules: []string{"x"}}, b.Registry,
		func(x *Export) (Selection, error) {
			return func(_ *counters.Bans, name *banname.Name) (Spares, bool) {
				return nil, name.Rule == "r" && x.Rules[0] == "x"
			}, nil
		}, discard)
	e.mustOnce(t)
	inode := func() os.FileInfo {
		info, err := os.Stat(file)
		testkit.Must(t, err)
		return info
	}
	empty := inode()
	other := named(t, banname.Name{Rule: "other", Keys: banname.AddressKeys, Bits: 64}, time.Minute)
	b.Table.Ban(other, 0xffffffff_c0000201, start)
	b.Update()
	if e.mustOnce(t); !os.SameFile(empty, inode()) {
		t.Error("it is written for the ban of a rule that is not exported")
	}
	bans, key := b.ban(t, "192.0.2.7/32", "", time.Minute)
	if e.mustOnce(t); !strings.HasSuffix(content(t, file), "\ndeny 192.0.2.7;\n") {
		t.Errorf("with a ban: %s", content(t, file))
	}
	b.Table.LiftBan(bans, key, start)
	b.Update()
	if e.mustOnce(t); strings.Contains(content(t, file), "192.0.2.7") {
		t.Error("it has a ban that is lifted")
	}
	b.ban(t, "192.0.2.8/32", "", time.Minute)
	e.mustOnce(t)
	testkit.Must(t, os.Remove(file))
	if e.mustOnce(t); !strings.Contains(content(t, file), "192.0.2.8") {
		t.Error("a file that was removed does not come back")
	}
	written := content(t, file)
	for what, change := range map[string]func() error{
		"emptied":  func() error { return os.Truncate(file, 0) },
		"replaced": func() error { return errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o640)) },
		"edited":   func() error { return os.WriteFile(file, []byte(strings.Repeat("x", len(written))), 0o640) },
	} {
		testkit.Must(t, change())
		if e.mustOnce(t); content(t, file) != written {
			t.Errorf("a file that was %s stays so: %s", what, content(t, file))
		}
	}
	if e.report(1, nil); e.Stats().Restored != 4 {
		t.Errorf("%d times it was exported anew, want 4", e.Stats().Restored)
	}
	if b.pass(time.Minute + time.Millisecond); strings.Contains(content(t, file), "192.0.2.9") {
		t.Error("it changes before it is looked at")
	}
	if e.mustOnce(t); strings.Contains(content(t, file), "192.0.2.8") {
		t.Error("it has a ban that is over")
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("beside it are %v, %v", left, err)
	}
}

// A command gets none of the node's variables that may hold a password.
func TestCommandsGetNoSecrets(t *testing.T) {
	t.Setenv("EDGELIMIT_REDIS", "redis://:s3cret@redis")
	t.Setenv("REDIS_AUTH", "s3cret")
	t.Setenv("LANG", "C.UTF-8")
	file := filepath.Join(t.TempDir(), "environment")
	testkit.Must(t, output(exec.Command("sh", "-c", `env >"$0"`, file)))
	if text := content(t, file); strings.Contains(text, "s3cret") || !strings.Contains(text, "LANG=C.UTF-8\n") ||
		!strings.Contains(text, "PATH=") {
		t.Errorf("the command has\n%s", text)
	}
}

// The exporter itself: within a second of a change, gone on time, one warning while it fails, tried again.
func TestExporterRuns(t *testing.T) {
	b := newBanned(t)
	b.Registry.now = func() int64 { return time.Now().UnixNano() }
	dir := filepath.Join(t.TempDir(), "missing")
	file := filepath.Join(dir, "deny")
	e := NewExporter(Export{Format: "nginx", File: file, Command: []string{"touch", file + ".ran"}}, b.Registry, always,
		b.log.Logger())
	testkit.Background(t, func(ctx context.Context) error { b.Registry.Run(ctx); return nil })
	testkit.Background(t, func(ctx context.Context) error { e.Run(ctx); return nil })
	testkit.Eventually(t, "a failure", func() bool { return e.Stats().Failures > 0 })
	testkit.Must(t, os.Mkdir(dir, 0o755))
	testkit.Eventually(t, "a file", func() bool { _, err := os.Stat(file); return err == nil })
	testkit.Eventually(t, "a command", func() bool { _, err := os.Stat(file + ".ran"); return err == nil })
	bans := named(t, banname.Name{Rule: "r", Keys: banname.AddressKeys, Bits: 64}, 700*time.Millisecond)
	has := func() bool { return strings.Contains(content(t, file), "192.0.2.1;") }
	b.Table.Ban(bans, 0xffffffff_c0000201, time.Now().UnixNano())
	testkit.EventuallyWithin(t, time.Second, "the ban in the file", has)
	testkit.EventuallyWithin(t, 1700*time.Millisecond, "its end", func() bool { return !has() })
	if n := strings.Count(b.log.String(), "bans cannot be exported"); n != 1 ||
		!b.log.HasLine("bans are exported again", "export=nginx:"+file) {
		t.Errorf("%d warnings in\n%s", n, b.log)
	}
	if s := e.Stats(); s.Name != "nginx:"+file || time.Since(s.Success) > time.Minute {
		t.Errorf("%+v", s)
	}
}

// A command is a program with arguments; no shell looks at them, whatever they hold. It does not run too often.
func TestCommands(t *testing.T) {
	b, dir := newBanned(t), t.TempDir()
	e := NewExporter(Export{Format: "nginx", File: filepath.Join(dir, "deny"),
		Command: []string{"touch", filepath.Join(dir, "$(id);x")}}, b.Registry, always, discard)
	e.mustOnce(t)
	if _, err := os.Stat(filepath.Join(dir, "$(id);x")); err != nil {
		t.Error(err)
	}
	b.ban(t, "192.0.2.7/32", "", time.Minute)
	if e.mustOnce(t); !e.due {
		t.Error("it ran again at once")
	}
	e.ran = e.ran.Add(-commandPause)
	if e.mustOnce(t); e.due {
		t.Error("it did not run later")
	}
	e.export.Command = []string{"sh", "-c", "echo broken >&2; exit 3"}
	e.ran, e.due = time.Time{}, true
	if _, err := e.once(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3: broken") || !e.due {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err := e.once(t.Context()); err == nil || !e.due {
		t.Error("it has failed, waits to be run again, and counts as a success")
	}
}

// Timeouts count from when a file is read, and ipset's are shorter than a ban may be: such files are written, and their
// commands run, again and again while somebody is banned, and before a command that failed is repeated.
func TestFilesWithTimeoutsStayExact(t *testing.T) {
	b, dir := newBanned(t), t.TempDir()
	var now time.Duration
	exporter := func(format string) (e *Exporter, seen func(command string) string) {
		file := filepath.Join(dir, format)
		e = NewExporter(Export{Format: format, File: file}, b.Registry, always, b.log.Logger())
		return e, func(command string) string {
			_ = os.Remove(file + ".seen")
			e.export.Command = []string{"sh", "-c", "cp $0 $0.seen; " + command, file}
			e.ran = time.Time{}
			_, err := e.once(t.Context())
			if e.report(0, err); (err == nil) != (command == "exit 0") {
				t.Errorf("%s with %s: %v", format, command, err)
			}
			text, _ := os.ReadFile(file + ".seen")
			return string(text)
		}
	}
	pass := func(d time.Duration) { now += d; b.pass(d) }
	ipset, ipsetSeen := exporter("ipset")
	_, nftSeen := exporter("nftables")
	_, nginxSeen := exporter("nginx")
	ipsetSeen("exit 0")
	if pass(refill); ipsetSeen("exit 0") != "" {
		t.Error("a file of nobody is written for the time that has passed")
	}
	const day = 24 * time.Hour
	b.ban(t, "192.0.2.0/24", "long", 60*day)
	b.ban(t, "198.51.100.0/24", "short", time.Hour)
	nginxSeen("exit 0")
	for _, test := range []struct {
		pass       time.Duration
		command    string
		ipset, nft string // nothing: the command does not run
	}{
		{0, "exit 0", "timeout 2147483 ", "timeout 5184000s1ms"},
		{time.Second, "exit 0", "", ""},
		{refill, "exit 0", "timeout 2147483 ", "timeout 5183399s1ms"},
		{40*day - refill - time.Second, "exit 1", "timeout 1728001 ", "timeout 1728000s1ms"},
		{time.Minute, "exit 1", "timeout 1727941 ", "timeout 1727940s1ms"},
		{time.Minute, "exit 0", "timeout 1727881 ", "timeout 1727880s1ms"},
		{time.Second, "exit 0", "", ""},
	} {
		pass(test.pass)
		for want, got := range map[string]string{test.ipset: ipsetSeen(test.command),
			test.nft: nftSeen(test.command)} {
			if (got == "") != (want == "") || !strings.Contains(got, want) ||
				now > refill+time.Hour && strings.Contains(got, "198.51.100") {
				t.Errorf("after %v with %s: want %q in\n%s", now, test.command, want, got)
			}
		}
		if now > time.Hour {
			continue
		}
		if got := nginxSeen("exit 0"); got != "" {
			t.Errorf("after %v a file without timeouts is written: %s", now, got)
		}
	}
	if n := strings.Count(b.log.String(), "bans cannot be exported"); n != 2 || ipset.Stats().Failures != 2 {
		t.Errorf("%d warnings, %d failures of one", n, ipset.Stats().Failures)
	}
}

// A prefix that is left out for an address that came to be allowed is one warning.
func TestSparedPrefixesAreWarnedOf(t *testing.T) {
	b, allowed := newBanned(t), netip.MustParsePrefix("192.0.2.128/25")
	why := AllowListed
	e := NewExporter(Export{Format: "json", File: filepath.Join(t.TempDir(), "f")}, b.Registry,
		func(*Export) (Selection, error) {
			return func(*counters.Bans, *banname.Name) (Spares, bool) {
				return func(p netip.Prefix) Spare {
					if allowed.Overlaps(p) {
						return why
					}
					return Blocked
				}, true
			}, nil
		}, b.log.Logger())
	warnings := func() int { return strings.Count(b.log.String(), "banned addresses are not exported") }
	b.ban(t, "192.0.2.7/32", "", time.Minute)
	b.ban(t, "192.0.2.200/32", "", time.Minute)
	b.ban(t, "192.0.2.0/25", "x", time.Minute)
	if e.mustOnce(t); warnings() != 0 {
		t.Errorf("nobody is left out who is denied:\n%s", b.log)
	}
	allowed = netip.MustParsePrefix("192.0.2.1/32")
	for range 2 {
		if e.mustOnce(t); warnings() != 1 || !b.log.HasLine("example=192.0.2.0/25") {
			t.Errorf("a prefix is left out:\n%s", b.log)
		}
	}
	b.ban(t, "192.0.0.0/16", "x", time.Minute)
	if e.mustOnce(t); warnings() != 2 || !b.log.HasLine("example=192.0.0.0/16") {
		t.Errorf("another prefix is left out:\n%s", b.log)
	}

	// Of protected addresses, which clients can have banned, it is one until there are none.
	why, allowed = Protected, netip.MustParsePrefix("127.0.0.0/8")
	for i, addr := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		b.ban(t, addr+"/32", "", time.Minute)
		if e.mustOnce(t); warnings() != 3 || !b.log.HasLine("because=", "of this machine") {
			t.Errorf("of %s:\n%s", addr, b.log)
		}
		if e.report(0, nil); e.Stats().Spared != i+1 || e.Stats().Example.String() != "127.0.0.1/32" ||
			e.Stats().Because != Protected || strings.Contains(content(t, e.export.File), "127.0.0") {
			t.Errorf("of %s: %+v", addr, e.Stats())
		}
	}
	b.pass(time.Hour)
	e.mustOnce(t)
	b.ban(t, "127.0.0.4/32", "", time.Minute)
	if e.mustOnce(t); warnings() != 4 {
		t.Errorf("another one later:\n%s", b.log)
	}
}

// A command that fails again and again keeps no ban from the file.
func TestFailingCommandsDelayNothing(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		b, file := newBanned(t), filepath.Join(t.TempDir(), "deny")
		b.Registry.now = func() int64 { return time.Now().UnixNano() }
		e := NewExporter(Export{Format: "nginx", File: file, Command: []string{"false"}}, b.Registry, always, discard)
		testkit.Background(t, func(ctx context.Context) error { b.Registry.Run(ctx); return nil })
		testkit.Background(t, func(ctx context.Context) error { e.Run(ctx); return nil })
		time.Sleep(10 * time.Minute)
		if n := e.Stats().Failures; n < 100 || n > 600 {
			t.Errorf("in ten minutes there are %d failures", n)
		}
		bans := named(t, banname.Name{Rule: "r", Keys: banname.AddressKeys, Bits: 64}, time.Minute)
		b.Table.Ban(bans, 0xffffffff_c0000201, time.Now().UnixNano())
		time.Sleep(time.Second)
		if !strings.Contains(content(t, file), "192.0.2.1;") {
			t.Error("a ban is not in the file after a second")
		}
	})
}

func TestConfig(t *testing.T) {
	good := Config{Exports: []Export{
		{Format: "nftables", Apply: true}, {Format: "ipset", File: "/run/a"},
		{Format: "nginx", File: "/run/b", Command: []string{"nginx", "-s", "reload"}},
	}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, x := range map[string]Export{
		"format: \"iptables\", want one of":     {Format: "iptables", File: "/x"},
		"file: \"x\", want an absolute path":    {Format: "json", File: "x"},
		"file: an export without a file":        {Format: "nftables"},
		"apply is for nftables":                 {Format: "ipset", File: "/x", Apply: true},
		"table: \"a; flush ruleset\"":           {Format: "nftables", Apply: true, Table: "a; flush ruleset"},
		"set: \"a b\"":                          {Format: "ipset", File: "/x", Set: "a b"},
		"command: it names no program":          {Format: "json", File: "/x", Command: []string{""}},
		"command: it runs after":                {Format: "nftables", Apply: true, Command: []string{"x"}},
		"exports[3]: /run/a is already that of": {Format: "json", File: "/run/a"},
		"exports[3]: set edgelimit banned is":   {Format: "nftables", Apply: true, File: "/x"},
	} {
		bad := Config{Exports: append(good.Exports[:3:3], x)}
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", x, err, want)
		}
	}
}

// The sets of a real kernel have what is banned and nothing else, whatever was in them before and whoever meddles.
func TestKernelSets(t *testing.T) {
	if !testkit.Namespace(t) {
		return
	}
	b := newBanned(t)
	e := NewExporter(Export{Format: "nftables", Apply: true}, b.Registry, always, discard)
	sets := func() string {
		out := testkit.Run(t, "nft", "list", "table", "inet", "edgelimit")
		return strings.Join(strings.Fields(out), " ")
	}
	want := func(what string, in, out []string) {
		t.Helper()
		e.mustOnce(t)
		got := sets()
		for _, text := range in {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %s is not in %s", what, text, got)
			}
		}
		for _, text := range out {
			if strings.Contains(got, text) {
				t.Errorf("%s: %s is in %s", what, text, got)
			}
		}
	}
	testkit.Run(t, "nft", "add table inet edgelimit; "+
		"add set inet edgelimit banned_v4 { type ipv4_addr; flags timeout; }; "+
		"add element inet edgelimit banned_v4 { 203.0.113.7 }")
	want("at the start", []string{"set banned_v4 { type ipv4_addr", "set banned_v6 { type ipv6_addr"},
		[]string{"203.0.113"})
	bans, key := b.ban(t, "192.0.2.7/32", "", time.Minute)
	b.ban(t, "2001:db8:1:2::/64", "", time.Minute)
	want("two bans", []string{"192.0.2.7 timeout 1m", "2001:db8:1:2:: timeout 1m"}, nil)
	wide, wideKey := b.ban(t, "192.0.0.0/16", "wide", time.Hour)
	want("a prefix around one", []string{"192.0.0.0/16 timeout 1h"}, []string{"192.0.2.7"})
	b.Table.LiftBan(wide, wideKey, start)
	b.Update()
	want("it is lifted", []string{"192.0.2.7 timeout 1m"}, []string{"192.0.0.0/16"})
	b.ban(t, "192.0.2.7/32", "longer", time.Hour)
	want("a ban is prolonged", []string{"192.0.2.7 timeout 1h"}, []string{"timeout 1m1ms expires 5"})
	testkit.Run(t, "nft", "flush", "set", "inet", "edgelimit", "banned_v4")
	b.ban(t, "192.0.2.8/32", "", time.Minute)
	b.Table.LiftBan(bans, key, start)
	b.Update()
	want("somebody flushed it", []string{"192.0.2.8"}, nil)
	testkit.Run(t, "nft", "delete", "table", "inet", "edgelimit")
	b.ban(t, "192.0.2.9/32", "", time.Minute)
	want("somebody deleted it", []string{"192.0.2.7", "192.0.2.8", "192.0.2.9"}, nil)
	// nobody is banned or let out meanwhile: the look of every heartbeat finds what is missing
	b.ban(t, "198.51.100.0/24", "wide", time.Hour)
	b.ban(t, "2001:db8::/32", "wide", time.Hour)
	b.ban(t, "2001:db7:9:2::/64", "", time.Hour)
	all := []string{"192.0.2.7", "192.0.2.8", "192.0.2.9", "198.51.100.0/24", "2001:db8::/32", "2001:db7:9:2::"}
	want("more bans", all, nil)
	before := e.kernel.restored
	for i, meddle := range []string{"flush ruleset", "delete table inet edgelimit",
		"flush set inet edgelimit banned_v4", "flush set inet edgelimit banned_v4_net",
		"flush set inet edgelimit banned_v6_net", "delete set inet edgelimit banned_v6",
		"delete element inet edgelimit banned_v4 { 192.0.2.8 }",
	} {
		testkit.Run(t, "nft", meddle)
		want(meddle, all, nil)
		if e.report(0, nil); e.Stats().Restored != before+uint64(i)+1 {
			t.Errorf("after %s: %d times restored", meddle, e.Stats().Restored-before)
		}
	}
	want("nobody meddles", all, nil)
	if e.kernel.restored != before+7 {
		t.Errorf("the sets are filled anew although nothing is missing")
	}
	b.pass(2 * time.Hour)
	want("all are over", nil, nil) // the kernel drops them by its own clock
	if got := b.exported(); len(got) != 0 {
		t.Errorf("exported are %v", got)
	}
	e.kernel.export.NFT = "no-such-nft"
	b.ban(t, "192.0.2.10/32", "", time.Minute)
	if _, err := e.once(t.Context()); err == nil || !strings.Contains(err.Error(), "install nftables") {
		t.Errorf("without nft: %v", err)
	}
	e.kernel.export.NFT = ""
	want("after a failure", []string{"192.0.2.10"}, []string{"192.0.2.7"})

	// the same by files
	file := filepath.Join(t.TempDir(), "file")
	NewExporter(Export{Format: "nftables", File: file, Set: "file"}, b.Registry, always, discard).mustOnce(t)
	testkit.Run(t, "nft", "-f", file)
	if got := sets(); !strings.Contains(got, "set file_v4 { type ipv4_addr flags timeout elements = { 192.0.2.10") {
		t.Errorf("by a file: %s", got)
	}
	b.ban(t, "0.0.0.0/0", "all", time.Hour)
	b.ban(t, "2001:db8::/32", "more", time.Hour)
	ipset := NewExporter(Export{Format: "ipset", File: file}, b.Registry, always, discard)
	for range 2 { // also where the sets exist
		ipset.written = nil
		ipset.mustOnce(t)
		testkit.Run(t, "ipset", "restore", "-file", file)
	}
	got := testkit.Run(t, "ipset", "list")
	for _, text := range []string{"\n0.0.0.0/1 timeout 3", "\n128.0.0.0/1 timeout 3", "\n2001:db8::/32 timeout 3"} {
		if !strings.Contains(got, text) {
			t.Errorf("ipset has no %q: %s", text, got)
		}
	}
	if strings.Contains(got, "edgelimit_v4_n") {
		t.Errorf("ipset keeps its temporary sets: %s", got)
	}
}

// nginx and HAProxy take their files, and deny whom these name.
func TestProxiesTakeTheFiles(t *testing.T) {
	b, dir := newBanned(t), t.TempDir()
	b.ban(t, "127.0.0.2/32", "", time.Minute)
	b.ban(t, "2001:db8::/64", "", time.Minute)
	nginx, haproxy := filepath.Join(dir, "nginx.deny"), filepath.Join(dir, "haproxy.lst")
	NewExporter(Export{Format: "nginx", File: nginx}, b.Registry, always, discard).mustOnce(t)
	NewExporter(Export{Format: "haproxy", File: haproxy}, b.Registry, always, discard).mustOnce(t)
	addrs := [2]string{testkit.FreeAddr(t), testkit.FreeAddr(t)}
	conf := filepath.Join(dir, "nginx.conf")
	write(t, conf, fmt.Sprintf("daemon off; master_process off; pid %s/pid; error_log stderr;\nevents {}\n"+
		"http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;\n"+
		"uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\nserver { listen %[2]s; include %[3]s;\n"+
		"location / { root %[1]s; try_files /nginx.deny =404; } } }\n", dir, addrs[0], nginx))
	testkit.Start(t, exec.Command("nginx", "-e", "stderr", "-p", dir, "-c", conf))
	conf = filepath.Join(dir, "haproxy.cfg")
	write(t, conf, fmt.Sprintf("defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n"+
		"frontend f\n bind %s\n http-request deny deny_status 403 if { src -f %s }\n"+
		" http-request return status 200\n", addrs[1], haproxy))
	testkit.Run(t, "haproxy", "-c", "-f", conf)
	testkit.Start(t, exec.Command("haproxy", "-db", "-f", conf))
	for i, name := range []string{"nginx", "haproxy"} {
		get := func(from string) int {
			web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialFrom(from)}}
			resp, err := web.Get("http://" + addrs[i] + "/")
			if err != nil {
				return 0
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		testkit.Eventually(t, name+" serves", func() bool { return get("127.0.0.1") == 200 })
		if got := get("127.0.0.2"); got != 403 {
			t.Errorf("%s answers %d to whom it is to deny", name, got)
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// dialFrom connects from an address of loopback.
func dialFrom(addr string) func(ctx context.Context, network, to string) (net.Conn, error) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return d.DialContext
}

const many = 100_000

// manyBans are bans of so many addresses that a peer sent.
func manyBans(t testing.TB, b *banned, many int) {
	name := banname.Name{Rule: "edge/remote_address", Keys: banname.AddressKeys, Bits: 64}
	m := named(t, name, time.Hour).Meter()
	slots := make([]counters.Slot, 0, 1000)
	for i := range counters.Key(many) {
		slots = append(slots, counters.Slot{Meter: &m, Key: 0xffffffff_0a000000 + i, Index: m.Index(start), Origin: 2,
			Count: uint64((start + int64(time.Hour) - int64(i)) / 1e6)})
		if len(slots) == cap(slots) {
			b.Merge(slots, start)
			slots = slots[:0]
			b.Update()
		}
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A hundred thousand bans cost at most 20 MB with all that an export to the kernel and to a file keeps of them, and
// every format is written in less than a second.
func TestManyBans(t *testing.T) {
	b := newBanned(t)
	file := filepath.Join(t.TempDir(), "file")
	exporters := []*Exporter{NewExporter(Export{Format: "nftables", Apply: true}, b.Registry, always, discard),
		NewExporter(Export{Format: "nginx", File: file}, b.Registry, always, discard)}
	exporters[0].kernel.export.NFT = "true" // takes everything
	before, bytesBefore := heap(), b.Table.Stats().Bytes
	manyBans(t, b, many)
	for _, e := range exporters {
		e.mustOnce(t)
	}
	outside, table := heap()-before, b.Table.Stats().Bytes-bytesBefore
	t.Logf("%d bans: %d bytes of the table's memory, %d of the heap", many, table, outside)
	if outside+table > 20<<20 {
		t.Errorf("%d bans cost %d bytes in the table, and %d beside it", many, table, outside)
	}
	if n := len(b.exported()); n != many {
		t.Fatalf("%d are exported", n)
	}
	for _, format := range formats {
		e := NewExporter(Export{Format: format, File: file}, b.Registry, always, discard)
		began := processorTime(t, syscall.RUSAGE_SELF)
		e.mustOnce(t)
		if took := processorTime(t, syscall.RUSAGE_SELF) - began; took > time.Second && !testkit.Enabled {
			t.Errorf("%s takes %v", format, took)
		} else {
			t.Logf("%s takes %v", format, took)
		}
	}
	if lines := bytes.Count([]byte(content(t, file)), []byte("\n")); lines < many {
		t.Errorf("the file has %d lines", lines)
	}
	runtime.KeepAlive(exporters)
}

// processorTime is what this process has used, or its children that have ended.
func processorTime(t testing.TB, who int) time.Duration {
	var use syscall.Rusage
	testkit.Must(t, syscall.Getrusage(who, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Of what so many bans take into a real set most is nft's.
func TestManyBansInTheKernel(t *testing.T) {
	if !testkit.Namespace(t) {
		return
	}
	b := newBanned(t)
	many := testkit.Tenth(many)
	manyBans(t, b, many)
	e := NewExporter(Export{Format: "nftables", Apply: true}, b.Registry, always, discard)
	began, own, nft := time.Now(), processorTime(t, syscall.RUSAGE_SELF), processorTime(t, syscall.RUSAGE_CHILDREN)
	e.mustOnce(t)
	own, nft = processorTime(t, syscall.RUSAGE_SELF)-own, processorTime(t, syscall.RUSAGE_CHILDREN)-nft
	t.Logf("it takes %v: %v of a processor here, %v in nft", time.Since(began), own, nft)
	if own > nft && !testkit.Enabled {
		t.Errorf("an export takes longer here, %v, than in nft, %v", own, nft)
	}
	began = time.Now()
	testkit.Must(t, e.kernel.fillInParts(t.Context(), e.kernel.applied, start))
	t.Logf("in parts it takes %v", time.Since(began))
	began = time.Now()
	b.ban(t, "192.0.2.7/32", "", time.Minute)
	e.mustOnce(t)
	t.Logf("one more takes %v", time.Since(began))
	out := testkit.Run(t, "nft", "list", "set", "inet", "edgelimit", "banned_v4")
	if strings.Count(out, "timeout") < many {
		t.Errorf("the set has %d elements", strings.Count(out, "timeout"))
	}
}

// ipset refuses to create a set that exists with other parameters: they do not follow the number of bans.
func TestIPSetsKeepTheirParameters(t *testing.T) {
	creates := func(bans int) (lines []string) {
		all := make([]entry, bans)
		for i := range all {
			key, bits, _ := banname.PrefixKey(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
				byte(i)}), 32))
			all[i] = entry{key: key, bits: uint8(bits), ends: start + int64(time.Minute)}
		}
		var out bytes.Buffer
		testkit.Must(t, (&Export{Format: "ipset"}).write(&out, all, nil, start))
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "create ") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	few, many := creates(1), creates(1<<16)
	if len(few) != 4 || strings.Join(few, "") != strings.Join(many, "") {
		t.Errorf("with few bans: %q, with many: %q", few, many)
	}
}

// A ban that is prolonged changes nothing in a file without ends: no proxy reads it again.
func TestProlongedBansReloadNothing(t *testing.T) {
	for _, format := range []string{"nginx", "haproxy"} {
		b, file := newBanned(t), filepath.Join(t.TempDir(), format)
		e := NewExporter(Export{Format: format, File: file, Command: []string{"true"}}, b.Registry, always, discard)
		b.ban(t, "192.0.2.7/32", "", time.Minute)
		e.mustOnce(t)
		ran := e.ran
		e.ran = time.Time{} // it may run again
		b.ban(t, "192.0.2.7/32", "longer", time.Hour)
		if e.mustOnce(t); !e.ran.IsZero() || ran.IsZero() {
			t.Errorf("%s: the command runs for the same file", format)
		}
		b.ban(t, "192.0.2.8/32", "", time.Minute)
		if e.mustOnce(t); e.ran.IsZero() {
			t.Errorf("%s: it does not run for another", format)
		}
	}
}
