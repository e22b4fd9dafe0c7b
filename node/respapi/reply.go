package respapi

import "strconv"

// reply holds what is to be written to a client. version is that of the protocol, 2 or 3.
type reply struct {
	out     []byte
	version int
}

// status appends a simple string.
func (r *reply) status(word string) { r.line('+', word) }

// error appends an error, its first word the code. Control characters become spaces: a line break would end it.
func (r *reply) error(text string) {
	from := len(r.out) + 1
	r.line('-', text)
	for line := r.out[from : len(r.out)-2]; len(line) > 0; line = line[1:] {
		if line[0] < ' ' || line[0] == 0x7f {
			line[0] = ' '
		}
	}
}

func (r *reply) line(kind byte, text string) {
	r.out = append(append(append(r.out, kind), text...), '\r', '\n')
}

func (r *reply) integer(v int64) { r.number(':', v) }

// number appends a number: a value, or the length of what follows.
func (r *reply) number(kind byte, v int64) {
	r.out = append(strconv.AppendInt(append(r.out, kind), v, 10), '\r', '\n')
}

func (r *reply) bulk(text []byte) {
	r.number('$', int64(len(text)))
	r.out = append(append(r.out, text...), '\r', '\n')
}

// bulks appends several bulk strings.
func (r *reply) bulks(texts ...string) {
	for _, text := range texts {
		r.bulk([]byte(text))
	}
}

// null appends the absence of a value.
func (r *reply) null() {
	if r.version == 2 {
		r.line('$', "-1")
	} else {
		r.line('_', "")
	}
}

// array begins an array of so many replies.
func (r *reply) array(n int) { r.number('*', int64(n)) }

// pairs begins so many pairs of replies.
func (r *reply) pairs(n int) {
	if r.version == 2 {
		r.array(2 * n)
	} else {
		r.number('%', int64(n))
	}
}
