package app

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A thousand hangups in a row are a few reloads, and none is forgotten.
func TestHangupsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangups := make(chan os.Signal, 1024)
		reloads, total := 0, 0
		stop := onHangup(hangups, func(merged int) {
			reloads++
			total += merged
		})
		for range 1000 {
			hangups <- syscall.SIGHUP
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Second)
		stop()
		if reloads > 6 || total != 1000 {
			t.Errorf("%d hangups are %d reloads", total, reloads)
		}
	})
}
