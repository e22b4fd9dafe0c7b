package rlsapi

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// heads returns the types and streams of the frames in some bytes, as frames finds them in pieces of a size.
func heads(b []byte, size int) (all []http2.FrameHeader) {
	var in frames
	for piece := range slices.Chunk(b, size) {
		in.each(piece, func(kind http2.FrameType, flags http2.Flags, stream uint32) bool {
			all = append(all, http2.FrameHeader{Type: kind, Flags: flags, StreamID: stream})
			return true
		})
	}
	return all
}

// However the bytes of a connection are cut, frames finds what http2 reads.
func FuzzFrames(f *testing.F) {
	var out bytes.Buffer
	w := http2.NewFramer(&out, nil)
	_ = w.WriteSettings()
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: make([]byte, 40), EndHeaders: true})
	_ = w.WriteData(7, true, make([]byte, 5))
	_ = w.WriteRSTStream(7, http2.ErrCodeCancel)
	f.Add(out.Bytes(), 1)
	f.Add(out.Bytes(), 10)
	f.Add([]byte("\xff\xff\xff\x00\x00\xff\xff\xff\xff"), 4)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = 1 + size&63
		var want []http2.FrameHeader
		for rest := bytes.NewReader(b); ; {
			h, err := http2.ReadFrameHeader(rest)
			if err != nil {
				break
			}
			want = append(want, http2.FrameHeader{Type: h.Type, Flags: h.Flags, StreamID: h.StreamID})
			_, _ = rest.Seek(int64(h.Length), io.SeekCurrent)
		}
		if got := heads(b, size); !slices.Equal(got, want) {
			t.Errorf("%x in pieces of %d: %v, want %v", b, size, got, want)
		}
	})
}
