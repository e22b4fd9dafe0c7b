package rlsapi

// MaxAge, AgeGrace and MaxIdle limit connections.
const (
	MaxAge   = maxAge
	AgeGrace = ageGrace
	MaxIdle  = DefaultIdleTimeout
)
