package cluster

import (
	"errors"
	"strings"
	"testing"
)

// An operator's container is beside the node that it asks, has the volume of the keys, and no capability.
func TestKeys(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		_, err := f.cluster.Keys(t.Context(), "eu-west-1", "status")
		fails(t, err, keyService)
		f.Add(&fakeContainer{ID: "id-key", Name: keyService, State: "exited", Labels: labels(keyService, "", "key")})
		out, err := f.cluster.Keys(t.Context(), "eu-west-1", "status", "--json")
		ok(t, err)
		ok(t, f.cluster.InstallKey(t.Context(), "us-east-1", "us-east-2"))
		stop, err := f.cluster.Intrude(t.Context(), "eu-west-1")
		ok(t, err)
		ok(t, stop(t.Context()))
		node, err := f.cluster.findNode(t.Context(), "eu-west-1")
		ok(t, err)
		commands := f.Commands("docker r")
		if out != "ran" || len(commands) != 4 {
			t.Fatalf("%q, %q", out, commands)
		}
		for i, want := range []string{"keys status --json", "install-key us-east-1 us-east-2",
			"--key-file /data/" + Intruder + ".key", "rm --force ran"} {
			if !strings.Contains(commands[i], want) {
				t.Errorf("%q lacks %q", commands[i], want)
			}
		}
		for _, want := range []string{"--rm", "--network container:" + node.network.ID + " ", "--read-only",
			"--cap-drop ALL", "--volumes-from id-key "} {
			if !strings.Contains(commands[0], want) {
				t.Errorf("%q lacks %q", commands[0], want)
			}
		}
		if _, err := f.cluster.Keys(t.Context(), "nowhere", "status"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		f.Fail = func(c Command) error {
			if c.Args[0] == "run" {
				return errors.New("exit status 2: k0 cannot be used yet")
			}
			return nil
		}
		if _, err := f.cluster.Keys(t.Context(), "eu-west-1", "use", KeyFile); err == nil ||
			!strings.Contains(err.Error(), "cannot be used yet") {
			t.Errorf("the reason is lost: %v", err)
		}
	})
}
