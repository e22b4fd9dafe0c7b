package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestLongestStall(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if worst := LongestStall(ctx); worst != 0 {
			t.Errorf("overslept by %v where time is virtual", worst)
		}
	})
}
