package multiregion

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/testnet/weather"
)

// What the compose file has nodes do to the WAN where no variable says otherwise.
const (
	usualDelay, usualJitter = 40 * time.Millisecond, 10 * time.Millisecond
	usualLoss               = 0.01
)

// Weather is what nodes do to what they send over the WAN, as the compose file and its variables have it.
func (t *Testnet) Weather() (weather.WAN, error) {
	delay, err1 := time.ParseDuration(cmp.Or(os.Getenv("EDGELIMIT_WAN_DELAY"), usualDelay.String()))
	jitter, err2 := time.ParseDuration(cmp.Or(os.Getenv("EDGELIMIT_WAN_JITTER"), usualJitter.String()))
	loss, err3 := strconv.ParseFloat(cmp.Or(os.Getenv("EDGELIMIT_WAN_LOSS"), fmt.Sprint(usualLoss)), 64)
	w := weather.WAN{Delay: delay, Jitter: jitter, Loss: loss}
	if err := errors.Join(err1, err2, err3); err != nil {
		return w, fmt.Errorf("EDGELIMIT_WAN_DELAY, _JITTER or _LOSS: %w", err)
	}
	return w, w.Validate()
}
