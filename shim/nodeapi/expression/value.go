package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
)

const (
	// SizeLimit bounds the text of a value, in bytes: that of its strings and names, and a few for each other part. AWS
	// Step Functions has the same limit.
	SizeLimit = 256 << 10
	// PartsLimit bounds how many arrays, objects, and values in them a value has.
	PartsLimit = 20_000
	// depthLimit bounds how deep they are in each other.
	depthLimit = 200
)

var (
	errLarge = fmt.Errorf("the value is larger than %d bytes, or than %d parts", SizeLimit, PartsLimit)
	errDeep  = fmt.Errorf("the value is deeper than %d levels", depthLimit)
)

// Decode reads one value of JSON, within the limits of values.
func Decode(text []byte) (any, error) {
	if len(text) > SizeLimit {
		return nil, errLarge
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading JSON: something follows the value")
	}
	v, err := normal(v)
	if err == nil {
		err = bounded(v)
	}
	return v, err
}

// Encode writes a value as JSON. Equal values have the same text.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// normal has the numbers of a decoded value be those that expressions compute with: an int, a *big.Int, or else a float64.
func normal(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case []any:
		for i := range v {
			if v[i], err = normal(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = normal(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// digitsLimit bounds the digits of an integer: computing with it takes time that nobody can stop.
const digitsLimit = 400

func number(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil && math.MinInt <= i && i <= math.MaxInt {
		return int(i), nil
	}
	if s := n.String(); !strings.ContainsAny(s, ".eE") && len(s) <= digitsLimit {
		if i, ok := new(big.Int).SetString(s, 10); ok {
			return i, nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("reading JSON: the number %.40s is too large", n)
	}
	return f, nil
}

// bounded tells whether a value is within the limits.
func bounded(v any) error {
	m := measure{}
	m.add(v, 0)
	return m.err
}

// part is about what a part of a value takes in memory, in bytes, beside its text.
const part = 64

// Memory is about how many bytes a value takes, if none of its parts are the same.
func Memory(v any) int64 {
	m := measured(v)
	return int64(m.size + part*m.parts)
}

// measure adds up a value, no further than the limits: parts of it may be the same, so it can be much larger than its memory.
type measure struct {
	size, parts int
	err         error
}

// plain is what a number counts for, or true, or null.
const plain = 8

func (m *measure) add(v any, depth int) {
	m.parts++
	switch v := v.(type) {
	case string:
		m.size += len(v)
	case *big.Int:
		m.size += v.BitLen() / plain
	case []any:
		for _, one := range v {
			if m.add(one, depth+1); m.err != nil {
				return
			}
		}
	case map[string]any:
		for k, one := range v {
			m.size += len(k)
			if m.add(one, depth+1); m.err != nil {
				return
			}
		}
	default:
		m.size += plain
	}
	switch {
	case m.size > SizeLimit || m.parts > PartsLimit:
		m.err = errLarge
	case depth > depthLimit:
		m.err = errDeep
	}
}
