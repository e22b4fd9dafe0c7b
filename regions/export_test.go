package regions

import "github.com/redis/go-redis/v9"

// RedisClient lets tests look over the client's shoulder.
func RedisClient(r *Redis) redis.UniversalClient { return r.client }
