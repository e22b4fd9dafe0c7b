package node

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// keysKnown waits until all nodes know all others with these keys.
func keysKnown(t *testing.T, what string, names []string, nodes ...*running) {
	t.Helper()
	testkit.Eventually(t, what, func() bool {
		return !slices.ContainsFunc(nodes, func(n *running) bool {
			all := n.KeyHolders()
			for _, h := range all {
				if !slices.Equal(h.Keys, names) || h.State == "unreachable" {
					return true
				}
			}
			return len(all) != len(nodes)
		})
	})
}

func namesIn(t *testing.T, file string) (names []string) {
	t.Helper()
	keys, err := ReadKeyFile(file)
	testkit.Must(t, err)
	for _, k := range keys.Gossip {
		names = append(names, KeyName(k))
	}
	return names
}

// The gossip key is replaced, with a step back, while six nodes of two regions serve: no request fails, nobody leaves,
// no count is lost, and in the end whoever has the old key is a stranger.
func TestKeysAreReplacedWhileNodesServe(t *testing.T) {
	t.Parallel()
	file := keyFile(t) // of all nodes
	old := write(t, "old.key", string(read(t, file)))
	log := &testkit.Log{}
	var nodes []*running
	seeds := make(map[string][]string) // of each region
	for i, region := range []string{"east", "east", "east", "west", "west", "west"} {
		cfg := gossiping(fmt.Sprintf("n%d", i), region, seeds[region]...)
		cfg.Gossip.KeyFile, cfg.RulesPoll, cfg.Logger = file, time.Second, log.Logger()
		n := launch(t, cfg).ready(t)
		if i == 0 {
			seeds["east"], seeds["west"] = []string{"wan:" + n.Addr("wan")}, []string{"wan:" + n.Addr("wan")}
		}
		if i == 0 || i == 3 { // the first of its region
			seeds[region] = append(seeds[region], n.Addr("lan"))
		}
		nodes = append(nodes, n)
	}
	allMembers(t, nodes...)
	stop := make(chan struct{})
	var load sync.WaitGroup
	var asked, failed atomic.Uint64
	for i, n := range nodes {
		load.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				_, err := n.Take(t.Context(), Request{Rule: "per_client", Identity: fmt.Sprint(i, "-", k%50)})
				asked.Add(1)
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	must := func(_ any, err error) {
		t.Helper()
		testkit.Must(t, err)
	}
	known := func(step string) { keysKnown(t, step, namesIn(t, file), nodes...) }
	known("at first")
	first := namesIn(t, file)[0]
	second, err := AddGossipKey(file)
	must(second, err)
	known("added")
	for _, name := range []string{second, first, second} { // a step back between
		must(nil, UseGossipKey(file, name))
		known("used")
	}
	must(nil, RemoveGossipKey(file, first))
	known("removed")
	close(stop)
	load.Wait()
	if asked.Load() < 600 || failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), asked.Load())
	}
	if log.HasLine("member gone") {
		t.Errorf("members were lost: %s", log)
	}
	for i := range nodes {
		for _, k := range []int{0, 49} {
			id := fmt.Sprint(i, "-", k)
			testkit.Eventually(t, "all count the same of "+id, func() bool {
				counts := make(map[uint64]bool)
				for _, n := range nodes {
					counts[spent(t, n.Node, "per_client", id)] = true
				}
				return len(counts) == 1 && !counts[0]
			})
		}
	}
	stranger := gossiping("old", "east", nodes[0].Addr("lan"))
	stranger.Gossip.KeyFile = old
	launch(t, stranger)
	testkit.Eventually(t, "who has the old key is refused", func() bool {
		streams, _ := nodes[0].cluster.Refused()
		return streams > 0
	})
	if len(nodes[0].Members()) != len(nodes)-1 {
		t.Error("who has the old key is a member")
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	return b
}

// A key file that cannot be used changes nothing, is reported once, by a metric too, and names no key.
func TestDamagedKeyFilesAreNotUsed(t *testing.T) {
	file, log := keyFile(t), &testkit.Log{}
	good := string(read(t, file))
	cfg := gossiping("a", "east")
	cfg.Gossip.KeyFile, cfg.Logger, cfg.Health = file, log.Logger(), "127.0.0.1:0"
	n := launch(t, cfg).ready(t)
	before := n.KeyHolders()[0].Keys
	current := func() float64 {
		_, series := scrape(t, n.Addr("health"))
		return series["edgelimit_secret_file_current setting=gossip.key_file"]
	}
	key := func(b byte) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32))) }
	many := "gossip: " + key('a') + "\ngossip: " + key('b') + "\ngossip: " + key('c') + "\n"
	for text, says := range map[string]string{
		"": "want at least one gossip key", "gossip: x": "not base64", many + good: "at most 3",
		good[:len(good)/2]:                "the",
		strings.ReplaceAll(good, "=", ""): "not base64",
		string(read(t, keyFile(t))):       "its identity key is another one",
		"gossip: " + key('a') + "\n" + strings.Repeat("# long\n", 10_000): "too long",
	} {
		logged := len(log.String())
		writeFile(t, file, text)
		n.Reload()
		testkit.Eventually(t, says, func() bool { return current() == 0 })
		lines := log.String()[logged:]
		if !strings.Contains(lines, "cannot be used") || !strings.Contains(lines, says) ||
			strings.Contains(lines, key('a')) {
			t.Errorf("%s\nwant %q", lines, says)
		}
		if now := n.KeyHolders()[0].Keys; !slices.Equal(now, before) {
			t.Errorf("the keys are %v now", now)
		}
		writeFile(t, file, good)
		n.Reload()
		testkit.Eventually(t, "it is good again", func() bool { return current() == 1 })
	}
}

// The password of the Redis protocol and the tokens of operators are replaced without a restart.
func TestSecretsAreReadAgain(t *testing.T) {
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
	password, tokens := write(t, "password", "one"), write(t, "tokens", "operate "+one)
	cfg := quiet(perClient)
	cfg.RESP, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
	cfg.RESPPasswordFile, cfg.AdminTokensFile = password, tokens
	n := launch(t, cfg).ready(t)
	login := func(password string) error {
		c := redis.NewClient(&redis.Options{Addr: n.Addr("resp"), Password: password, MaxRetries: -1})
		defer c.Close()
		return c.Ping(t.Context()).Err()
	}
	ask := func(token string) int {
		r, err := http.NewRequest("GET", "http://"+n.Addr("admin")+"/api/bans", nil)
		testkit.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := web.Do(r)
		testkit.Must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	if err := login("one"); err != nil || ask(one) != 200 || ask(two) != 401 {
		t.Fatalf("at first: %v, %d and %d", err, ask(one), ask(two))
	}
	writeFile(t, password, "two")
	writeFile(t, tokens, "read "+two)
	n.Reload()
	testkit.Eventually(t, "the new ones", func() bool { return login("two") == nil && ask(two) == 200 })
	if login("one") == nil || ask(one) != 401 {
		t.Error("the old ones are still good")
	}
	if status, _ := get(t, n.Addr("admin"), "/api/bans"); status != 401 {
		t.Errorf("on loopback without a token: %d", status)
	}
}

// An edit leaves comments and the owner's mode, happens one at a time, and fails as a whole.
func TestEditKeyFile(t *testing.T) {
	file := keyFile(t)
	link := filepath.Join(t.TempDir(), "link")
	testkit.Must(t, os.Symlink(file, link))
	testkit.Must(t, os.Chmod(file, 0o644))
	before, _ := ReadKeyFile(file)
	first := KeyName(before.Gossip[0])
	second, err := AddGossipKey(link)
	if err != nil || !slices.Equal(namesIn(t, file), []string{first, second}) {
		t.Fatalf("%v, %v", namesIn(t, file), err)
	}
	after, _ := ReadKeyFile(file)
	info, _ := os.Stat(file)
	if after.Identity != before.Identity || info.Mode().Perm() != 0o600 ||
		!strings.Contains(string(read(t, file)), "# identity: hashes who is counted") {
		t.Errorf("mode %v: %s", info.Mode(), read(t, file))
	}
	for says, edit := range map[string]func() error{
		"nodes send by " + first: func() error { return RemoveGossipKey(file, first) },
		"has no gossip key 0123": func() error { return UseGossipKey(file, "0123") },
		"is there":               func() error { writeFile(t, file+".new", ""); return UseGossipKey(file, second) },
		"no such file":           func() error { return UseGossipKey(file+"x", second) },
	} {
		text := read(t, file)
		if err := edit(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		_ = os.Remove(file + ".new")
		if string(read(t, file)) != string(text) {
			t.Errorf("%s: the file has changed", says)
		}
	}
	if _, err := AddGossipKey(file); err != nil {
		t.Fatal(err)
	}
	if _, err := AddGossipKey(file); err == nil || !strings.Contains(err.Error(), "at most 3") {
		t.Errorf("a fourth key: %v", err)
	}
	if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
}

// No secret is in the log at its most verbose, in a metric, in an error, or in what operators can read.
func TestSecretsStaySecret(t *testing.T) {
	key, token := keyFile(t), strings.Repeat("t0ken", 8)
	log := &testkit.Log{}
	cfg := gossiping("a", "east")
	cfg.Logger = log.Logger()
	cfg.Gossip.KeyFile, cfg.Health, cfg.Admin, cfg.RESP = key, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.RESPPasswordFile = write(t, "resp", "resp-passw0rd")
	cfg.AdminTokensFile = write(t, "tokens", "operate "+token)
	cfg.Redis.URL = "redis://user:url-passw0rd@" + testkit.FreeAddr(t)
	cfg.Strict.Redis = map[string]Redis{"west": {URL: "redis://" + testkit.FreeAddr(t),
		PasswordFile: write(t, "strict", "strict-passw0rd")}}
	secrets := []string{token, "resp-passw0rd", "url-passw0rd", "strict-passw0rd"}
	for line := range strings.Lines(string(read(t, key))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.Contains(name, "#") {
			secrets = append(secrets, value)
		}
	}
	if len(secrets) != 6 {
		t.Fatalf("%d secrets", len(secrets))
	}
	n := launch(t, cfg).ready(t)
	var shown strings.Builder
	fmt.Fprintf(&shown, "%v %+v", n.cfg.Redis, n.cfg.Strict)
	ask := func(listener, path string) {
		r, err := http.NewRequest("GET", "http://"+n.Addr(listener)+path, nil)
		testkit.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := web.Do(r)
		testkit.Must(t, err)
		_, body := slurp(t, resp)
		shown.WriteString(body)
	}
	for _, path := range []string{"/api/bans", "/api/keys", "/api/config", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		ask("admin", path)
	}
	ask("health", "/metrics")
	ask("health", "/readyz")
	for _, file := range []string{key, cfg.RESPPasswordFile, cfg.AdminTokensFile} { // each with a line too much
		text := string(read(t, file))
		writeFile(t, file, strings.TrimSpace(text)+"\nbroken")
		n.Reload()
		testkit.Eventually(t, file+" is found broken", func() bool { return log.HasLine("cannot be used", file) })
		writeFile(t, file, text)
	}
	testkit.Eventually(t, "Redis is missed", func() bool { return log.HasLine("refused") })
	shown.WriteString(log.String())
	for _, secret := range secrets {
		if at := strings.Index(shown.String(), secret); at >= 0 {
			t.Errorf("a secret is shown: %.200s", shown.String()[max(0, at-100):])
		}
	}
}

// A password of Redis is read for each connection.
func TestRedisPasswordIsReadAgain(t *testing.T) {
	file := write(t, "password", "one")
	r := Redis{URL: "redis://user@127.0.0.1:1", PasswordFile: file}
	cfg, err := r.Server("redis.")
	if err != nil || cfg.Password != "one" {
		t.Fatalf("%q, %v", cfg.Password, err)
	}
	writeFile(t, file, "two")
	if password, err := cfg.ReadPassword(); password != "two" || err != nil {
		t.Errorf("%q, %v", password, err)
	}
	writeFile(t, file, "")
	if password, err := cfg.ReadPassword(); password != "" || err == nil ||
		!strings.Contains(err.Error(), "redis.password_file: ") {
		t.Errorf("%q, %v", password, err)
	}
}

// A node that does not know everybody says so: nobody is to change the key of nodes that nobody asked.
func TestKeysOfUnknownNodes(t *testing.T) {
	n := launch(t, gossiping("a", "home", "wan:127.0.0.1:1"))
	testkit.Eventually(t, "the seed is unanswered", func() bool {
		all := n.KeyHolders()
		return len(all) == 2 && all[1].Node == "" && all[1].State == "unknown"
	})
}
