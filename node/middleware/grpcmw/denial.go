package grpcmw

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
)

// pushback is the trailer that a client's retry policy reads: how long to wait, in milliseconds; a negative number
// means for ever (https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback).
const pushback = "grpc-retry-pushback-ms"

// maxViolations caps the text of violations but for the first, in bytes: many clients take 8 KiB of trailers.
const maxViolations = 2048

// deny returns the status of a denied call, and adds to its trailer when to retry.
func (i *Interceptors) deny(
	v *counters.Verdict, layers []counters.Decision, retryAfter int64, trailer metadata.MD,
) error {
	details := []protoadapt.MessageV1{violations(layers)}
	if wait := v.Governing.RetryAfter; wait == counters.Never {
		trailer.Set(pushback, "-1")
	} else {
		wait = (i.headers.Spread(wait) + time.Millisecond - 1).Truncate(time.Millisecond)
		trailer.Set(pushback, strconv.FormatInt(wait.Milliseconds(), 10))
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	denial := status.New(codes.ResourceExhausted, answer.Advice(&v.Governing, retryAfter))
	if detailed, err := denial.WithDetails(details...); err == nil { // it fails for a name that is not UTF-8
		denial = detailed
	}
	return denial.Err()
}

// violations names the rules that deny.
func violations(layers []counters.Decision) *errdetails.QuotaFailure {
	var failure errdetails.QuotaFailure
	size := 0
	for _, rule := range answer.Violated(layers) {
		d := &layers[slices.IndexFunc(layers, func(d counters.Decision) bool { return !d.Allowed && d.Rule == rule })]
		text := fmt.Sprintf("it admits %d per %v", d.Limit, d.Window)
		if size += len(rule) + len(text); size > maxViolations && len(failure.Violations) > 0 {
			break
		}
		failure.Violations = append(failure.Violations,
			&errdetails.QuotaFailure_Violation{Subject: "rule:" + rule, Description: text})
	}
	return &failure
}
