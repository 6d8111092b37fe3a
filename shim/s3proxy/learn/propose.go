package learn

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"net/url"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

const (
	// shortest is the length of a value that may be found by chance, unless it is a whole segment of the key.
	shortest = 3
	// maxReads is how many reads of an observation propose templates. When these are explained it is the others' turn.
	maxReads = 8
	// maxTexts is how many templates a read proposes, besides the literal.
	maxTexts = 8
	// maxTrims is how many prefixes of a value are tried.
	maxTrims = 8
)

// match is a value of a request that is a part of a key.
type match struct {
	place   string // what stands between the braces
	text    string // what the placeholder becomes
	segment int    // of the path, from 1; 0: another field
	rest    bool   // from this segment to the end of the path
}

// proposal is the text of a template that makes the reference of the request.
type proposal struct {
	text                  string
	request               Request
	covered, placeholders int // bytes of the key, and by how many placeholders
}

// propose finds templates for the objects that no template names. A template is tested once two reads have proposed it,
// so keys that the program makes up leave no templates.
func (l *Learner) propose(o Observation, named map[string]bool) {
	reads := slices.DeleteFunc(slices.Clone(o.Read), func(read Object) bool { return named[read.Reference] })
	l.turn++
	for i := range min(len(reads), maxReads) {
		read := reads[(l.turn+i)%len(reads)]
		for _, p := range proposals(read.Reference, o.Requests) {
			hash := maphash.String(l.seed, p.text)
			if slices.Contains(l.proposed[:], hash) {
				l.add(p.text, p.request, read.Reference)
				continue
			}
			l.proposed[l.at] = hash
			l.at = (l.at + 1) % maxProposed
		}
	}
}

// proposals returns the templates that make the reference of any of the requests, each once: those that replace most of
// the key, and the literal. A request proposes the template with all fields that are in the key, and those without one
// of these fields. Some fields may be in the key by chance. A later request in which they are not proposes the template
// without them.
func proposals(ref string, requests []Request) []proposal {
	parsed, err := reference.Parse(ref)
	if err != nil || len(requests) == 0 || strings.ContainsAny(ref, "{}") {
		return nil
	}
	prefix := strings.TrimSuffix(ref, parsed.Key)
	var all []proposal
	for _, r := range requests {
		segments := r.segments()
		found := matches(parsed.Key, r, segments)
		for without := range len(found) + 1 {
			some := slices.Concat(found[:without], found[min(without+1, len(found)):])
			for _, p := range build(parsed.Key, some, prefix, segments) {
				p.request = r
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b proposal) int {
		return cmp.Or(
			cmp.Compare(b.covered, a.covered), cmp.Compare(a.placeholders, b.placeholders), cmp.Compare(a.text, b.text))
	})
	all = slices.CompactFunc(all, func(a, b proposal) bool { return a.text == b.text })
	return append(all[:min(len(all), maxTexts)], proposal{text: ref, request: requests[0]})
}

// matches are the fields of the request whose values are in the key, the longest first.
func matches(key string, r Request, segments []string) []match {
	var found []match
	find := func(m match, value string) bool {
		m, ok := m.in(key, value)
		if ok {
			found = append(found, m)
		}
		return ok
	}
	for name, values := range r.headers {
		find(match{place: "header." + name}, values[0])
	}
	_, query, _ := strings.Cut(r.target, "?")
	for query != "" {
		var parameter string
		parameter, query, _ = strings.Cut(query, "&")
		if name, value, _ := strings.Cut(parameter, "="); !isSecret(strings.ToLower(name)) {
			find(match{place: "query." + name}, value)
		}
	}
	for i, text := range segments {
		find(match{place: fmt.Sprintf("path.p%d", i+1), segment: i + 1}, text)
	}
	for i := range max(len(segments)-1, 0) {
		if find(match{place: "path.rest", segment: i + 1, rest: true}, strings.Join(segments[i:], "/")) {
			break
		}
	}
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.place, b.place))
	})
	return found[:min(len(found), reference.MaxPlaceholders)]
}

// in adds the modifiers with which the value is a part of the key. Programs usually decode parameters and paths, but
// not headers. The match is like that if decoding does not change the value.
func (m match) in(key, value string) (match, bool) {
	decode, header := url.PathUnescape, strings.HasPrefix(m.place, "header.")
	if strings.HasPrefix(m.place, "query.") {
		decode = url.QueryUnescape
	}
	raw, decoded := m, m
	raw.text = value
	text, err := decode(value)
	decoded.place, decoded.text = m.place+"|urldecode", text
	forms := []match{decoded, raw}
	if err != nil || header && text == value {
		forms = forms[1:]
	}
	for _, form := range forms {
		if next(key, form.text, 0) >= 0 {
			return form, true
		}
		for at, trims := 0, 0; form.segment == 0 && trims < maxTrims; trims++ {
			slash := strings.IndexByte(form.text[at:], '/')
			if slash < 0 {
				break
			}
			at += slash + 1
			if next(key, form.text[at:], 0) >= 0 {
				return match{place: form.place + "|trimprefix:" + form.text[:at], text: form.text[at:]}, true
			}
		}
	}
	return match{}, false
}

// next is where the key has the text, from a place on, as one or more whole words; -1 if it has not.
func next(key, text string, from int) int {
	for text != "" {
		at := strings.Index(key[from:], text)
		if at < 0 {
			break
		}
		at += from
		end := at + len(text)
		words := (at == 0 || !inWord(key[at-1]) || !inWord(key[at])) &&
			(end == len(key) || !inWord(key[end-1]) || !inWord(key[end]))
		segment := (at == 0 || key[at-1] == '/') && (end == len(key) || key[end] == '/')
		if words && (len(text) >= shortest || segment) {
			return at
		}
		from = at + 1
	}
	return -1
}

func inWord(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// build replaces what the matches find in the key, and returns the template. With variables of the path there are
// two: segments that it does not use are literals in the first one, and variables in the second.
func build(key string, found []match, prefix string, segments []string) []proposal {
	type span struct {
		from, to int
		place    string
	}
	var spans []span
	p := proposal{}
	used, rest := map[int]bool{}, len(segments)+1
	for _, m := range found {
		if m.segment > 0 && (m.rest && len(used) > 0 || m.segment >= rest) {
			continue // the path is used up
		}
		before := len(spans)
		for from := 0; len(spans) < reference.MaxPlaceholders; {
			at := next(key, m.text, from)
			if at < 0 {
				break
			}
			from = at + len(m.text)
			if !slices.ContainsFunc(spans, func(s span) bool { return at < s.to && s.from < from }) {
				spans = append(spans, span{at, from, m.place})
				p.covered += len(m.text)
			}
		}
		switch {
		case len(spans) == before:
		case m.rest:
			rest = m.segment
		case m.segment > 0:
			used[m.segment] = true
		}
	}
	if len(spans) == 0 {
		return nil
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	text, at := prefix, 0
	for _, s := range spans {
		text += key[at:s.from] + "{" + s.place + "}"
		at = s.to
	}
	text += key[at:]
	p.text, p.placeholders = text, len(spans)
	if len(used) == 0 && rest > len(segments) {
		return []proposal{p}
	}
	strict, wide := p, p
	strict.text = reference.Join(route(segments, used, rest, true), text)
	wide.text = reference.Join(route(segments, used, rest, false), text)
	return []proposal{strict, wide}
}

// route is the URI template of a path. Segments from rest on are one variable.
func route(segments []string, used map[int]bool, rest int, literals bool) string {
	var b strings.Builder
	for i, text := range segments {
		if i+1 == rest {
			b.WriteString("/{+rest}")
			break
		}
		_, err := reference.ParseRoute("/" + text)
		if used[i+1] || !literals || err != nil || strings.ContainsAny(text, "{}") {
			text = fmt.Sprintf("{p%d}", i+1)
		}
		b.WriteString("/" + text)
	}
	return b.String()
}
