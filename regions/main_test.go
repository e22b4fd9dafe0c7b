package regions

import (
	"log/slog"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) {
	LogRedisClient(slog.New(slog.DiscardHandler)) // servers are made to fail here by the dozen
	testkit.MainWithoutLeaks(m)
}
