package multiregion

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/weather"
)

// The weather that is told is that of the compose file, and of its variables.
func TestWeather(t *testing.T) {
	b, err := os.ReadFile("../../" + composeFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, usual := range map[string]any{"DELAY": usualDelay, "JITTER": usualJitter, "LOSS": usualLoss} {
		t.Setenv("EDGELIMIT_WAN_"+name, "")
		if want := fmt.Sprintf("${EDGELIMIT_WAN_%s:-%v}", name, usual); !strings.Contains(string(b), want) {
			t.Errorf("the compose file does not say %s", want)
		}
	}
	var net Testnet
	if w, err := net.Weather(); err != nil || w != (weather.WAN{Delay: usualDelay, Jitter: usualJitter, Loss: usualLoss}) {
		t.Errorf("%+v, %v", w, err)
	}
	t.Setenv("EDGELIMIT_WAN_DELAY", "7ms")
	t.Setenv("EDGELIMIT_WAN_JITTER", "0s")
	t.Setenv("EDGELIMIT_WAN_LOSS", "0.25")
	if w, err := net.Weather(); err != nil || w != (weather.WAN{Delay: 7 * time.Millisecond, Loss: 0.25}) {
		t.Errorf("%+v, %v", w, err)
	}
	for _, bad := range []string{"odd", "2"} {
		t.Setenv("EDGELIMIT_WAN_LOSS", bad)
		if _, err := net.Weather(); err == nil {
			t.Errorf("a loss of %s is no error", bad)
		}
	}
}
