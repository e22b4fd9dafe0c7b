package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/netem"
)

// WAN returns what the compose file and its variables inject.
func TestWAN(t *testing.T) {
	b, err := os.ReadFile(composePath("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"DELAY": defaultDelay, "JITTER": defaultJitter, "LOSS": defaultLoss} {
		t.Setenv("EDGELIMIT_WAN_"+name, "")
		if want := fmt.Sprintf("${EDGELIMIT_WAN_%s:-%v}", name, value); !strings.Contains(string(b), want) {
			t.Errorf("the compose file does not say %s", want)
		}
	}
	var c Cluster
	if w, err := c.WAN(); err != nil ||
		w != (netem.Link{Latency: defaultDelay, Jitter: defaultJitter, Loss: defaultLoss}) {
		t.Errorf("%+v, %v", w, err)
	}
	t.Setenv("EDGELIMIT_WAN_DELAY", "7ms")
	t.Setenv("EDGELIMIT_WAN_JITTER", "0s")
	t.Setenv("EDGELIMIT_WAN_LOSS", "0.25")
	if w, err := c.WAN(); err != nil || w != (netem.Link{Latency: 7 * time.Millisecond, Loss: 0.25}) {
		t.Errorf("%+v, %v", w, err)
	}
	for _, bad := range []string{"odd", "2"} {
		t.Setenv("EDGELIMIT_WAN_LOSS", bad)
		if _, err := c.WAN(); err == nil {
			t.Errorf("a loss of %s is no error", bad)
		}
	}
}
