package rlsapi

import (
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec is gRPC's own but for requests with strings that are no UTF-8. Envoy copies headers into descriptors as they
// are, and HTTP allows any byte from 0x80 on in them. An error for such a request would have a fail-open Envoy let it
// pass without any limit; so whatever is no UTF-8 is replaced by U+FFFD, and the request is counted under that.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	req, asked := v.(*rls.RateLimitRequest)
	if err == nil || !asked {
		return err
	}
	if b, ok := repair(data.Materialize(), req.ProtoReflect().Descriptor()); ok {
		return proto.Unmarshal(b, req) // it resets the message first
	}
	return err
}

// repair returns the wire form of a message with U+FFFD in place of what is no UTF-8 in its strings, those of messages
// in it included. It reports false where b is no message.
func repair(b []byte, of protoreflect.MessageDescriptor) (repaired []byte, ok bool) {
	repaired = make([]byte, 0, len(b))
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return nil, false
		}
		field, complete := b[tag:tag+size], b[:tag+size]
		b = b[tag+size:]
		fd := of.Fields().ByNumber(number)
		if fd == nil || kind != protowire.BytesType {
			repaired = append(repaired, complete...)
			continue
		}
		value, _ := protowire.ConsumeBytes(field)
		switch fd.Kind() {
		case protoreflect.StringKind:
			value = []byte(strings.ToValidUTF8(string(value), "\uFFFD"))
		case protoreflect.MessageKind:
			if value, ok = repair(value, fd.Message()); !ok {
				return nil, false
			}
		}
		repaired = protowire.AppendBytes(protowire.AppendTag(repaired, number, kind), value)
	}
	return repaired, true
}
