package regions

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	LogRedisClient(slog.New(slog.DiscardHandler)) // servers are made to fail here by the dozen
	goleak.VerifyTestMain(m)
}
