package regions

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogRedisClient routes what the Redis client library says by itself (lost connections, changes of master) into a
// logger, for the whole process: it has one logger for all clients, standard error unless told otherwise. It may be
// called at any time.
func LogRedisClient(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ *slog.Logger }

// Printf is called by the library.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, "redis client", slog.String("says", fmt.Sprintf(format, v...)))
	}
}
