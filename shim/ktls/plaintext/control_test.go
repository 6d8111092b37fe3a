package plaintext

import (
	"errors"
	"io"
	"strings"
	"testing"
)

type record struct {
	kind byte
	body string
}

const ticket = "\x04\x00\x00\x03abc"

func TestControl(t *testing.T) {
	for name, c := range map[string]struct {
		records []record
		want    error
		words   string
	}{
		"data":    {records: []record{{typeData, "x"}}},
		"tickets": {records: []record{{typeHandshake, ticket + ticket}, {typeData, "x"}, {typeHandshake, ticket}}},
		"a ticket in pieces": {
			records: []record{{typeHandshake, ticket[:2]}, {typeHandshake, ticket[2:5]}, {typeHandshake, ticket[5:]}},
		},
		"an empty ticket":  {records: []record{{typeHandshake, "\x04\x00\x00\x00" + ticket}}},
		"close_notify":     {records: []record{{typeAlert, "\x01\x00"}}, want: io.EOF},
		"an end in pieces": {records: []record{{typeAlert, "\x01"}, {typeAlert, "\x00"}}, want: io.EOF},
		"user_canceled":    {records: []record{{typeAlert, "\x01\x5a"}, {typeAlert, "\x01\x00"}}, want: io.EOF},
		"an alert":         {records: []record{{typeAlert, "\x02\x28"}}, words: "alert 40"},
		"a key update":     {records: []record{{typeHandshake, "\x18\x00\x00\x01\x00"}}, want: ErrRekeyed},
		"after a ticket":   {records: []record{{typeHandshake, ticket + "\x18\x00\x00\x01\x00"}}, want: ErrRekeyed},
		"a request":        {records: []record{{typeHandshake, "\x0d\x00\x00\x01\x00"}}, words: "type 13"},
		"interrupted":      {records: []record{{typeHandshake, ticket[:5]}, {typeData, "x"}}, words: "interrupts"},
		"endless":          {records: []record{{typeHandshake, "\x04\xff\xff\xff"}}, words: "16777215 bytes"},
		"unknown":          {records: []record{{24, ""}}, words: "type 24"},
	} {
		var control control
		var err error
		for _, r := range c.records {
			if err = control.note(r.kind, []byte(r.body)); err != nil {
				break
			}
		}
		switch {
		case c.words != "":
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v", name, err)
			}
		case !errors.Is(err, c.want):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzControl(f *testing.F) {
	f.Add(byte(typeHandshake), []byte(ticket+"\x18\x00\x00\x01\x00"))
	f.Add(byte(typeAlert), []byte("\x01\x5a\x01\x00"))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		var whole, pieces control
		want := whole.note(kind, b)
		var got error
		for i := 0; i < len(b) && got == nil; i++ {
			got = pieces.note(kind, b[i:i+1])
		}
		if len(b) > 0 && (want == nil) != (got == nil) {
			t.Errorf("%v, in pieces %v", want, got)
		}
	})
}
