package regions

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	LogRedisClient(slog.New(slog.DiscardHandler)) // servers are made to fail here by the dozen
	// After a number of failed dials the library keeps trying in the background, and notices a second late that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
