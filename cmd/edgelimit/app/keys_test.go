package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// keyServer answers as the admin listener of a node does, and asks for a token if there is one.
type keyServer struct {
	nodes []status.KeyHolder
	token string
}

func (s *keyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"nodes": s.nodes})
}

// The three steps of a rotation, and what each refuses while a node is not ready for it.
func TestKeysCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.key")
	testkit.Must(t, node.CreateKeyFile(file, false))
	names := func() (names []string) {
		keys, err := node.ReadKeyFile(file)
		testkit.Must(t, err)
		for _, k := range keys.Gossip {
			names = append(names, node.KeyName(k))
		}
		return names
	}
	var s keyServer
	server := httptest.NewServer(&s)
	defer server.Close()
	keys := func(args ...string) (code int, out, errors string) {
		t.Helper()
		if args[0] != "add" {
			args = slices.Insert(args, 1, "--url", server.URL)
		}
		r := edgelimit(t, append([]string{"keys"}, args...)...)
		return r.code, r.out, r.err
	}
	refused := func(says string, args ...string) {
		t.Helper()
		before := names()
		if code, _, err := keys(args...); code != 2 || !strings.Contains(err, says) {
			t.Errorf("%v: %d, %s\nwant %q", args, code, err, says)
		}
		if !slices.Equal(names(), before) {
			t.Errorf("%v: the file has changed", args)
		}
	}
	done := func(args ...string) {
		t.Helper()
		if code, out, err := keys(args...); code != 0 || err != "" {
			t.Fatalf("%v: %d %s %s", args, code, out, err)
		}
	}
	holders := func(keys ...[]string) {
		s.nodes = nil
		for i, k := range keys {
			state := []string{"this node", "member", "unreachable"}[i]
			s.nodes = append(s.nodes,
				status.KeyHolder{Node: string(rune('a' + i)), Region: "eu", State: state, Keys: k})
		}
	}
	old := names()[0]
	refused("has no gossip key 0123: it has "+old, "use", file, "0123")
	refused("has one gossip key", "use", file)
	done("add", file)
	both := names()
	now := both[1]

	holders(both, []string{old}, both)
	refused("eu/b (member) does not have it", "use", file)
	holders(both, both, []string{old})
	refused("eu/c (unreachable) does not have it", "use", file, now)
	holders(both, both, nil)
	refused("eu/c (unreachable) does not report its keys", "use", file)
	refused("sends by it", "remove", file, old)
	holders(both, both, both)
	done("use", file)
	if got := names(); !slices.Equal(got, []string{now, old}) {
		t.Fatalf("the file has %v", got)
	}

	used := []string{now, old}
	holders(used, both, used)
	refused("eu/b sends by it", "remove", file)
	holders(used, used, []string{"0000000000000000"})
	refused("eu/c (unreachable) does not have it", "remove", file)
	if code, out, _ := keys("status"); code != 0 || !strings.Contains(out, "eu/a  this node    "+now+"  "+old) {
		t.Errorf("%d\n%s", code, out)
	}
	done("remove", "--force", file)
	if got := names(); !slices.Equal(got, []string{now}) {
		t.Errorf("the file has %v", got)
	}
	server.Close()
	refused("no answer", "status")
}

// A token is shown from a file, and never sent in clear to another machine.
func TestTokenFile(t *testing.T) {
	token := strings.Repeat("t", 32)
	server := httptest.NewServer(&keyServer{token: token, nodes: []status.KeyHolder{{Node: "a", Region: "eu"}}})
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]int{token + "\n": 0, "": 2, "operate " + token: 2, "wrong": 2} {
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		r := edgelimit(t, "keys", "status", "--url", server.URL, "--token-file", file)
		if r.code != want || want == 2 && strings.Contains(r.err, token) {
			t.Errorf("%q: %+v", text, r)
		}
	}
	for _, url := range []string{"http://192.0.2.1:7949", "http://example.org", "http://[2001:db8::1]"} {
		testkit.Must(t, os.WriteFile(file, []byte(token), 0o600))
		r := edgelimit(t, "keys", "status", "--url", url, "--token-file", file)
		if !strings.Contains(r.err, "in clear") {
			t.Errorf("%s: %s", url, r.err)
		}
	}
}
