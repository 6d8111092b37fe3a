package expression

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// hangs is many times what an evaluation takes on a slow machine with the race detector. Without bounds they would never end.
const hangs = time.Minute

var variables = []string{"$context", "$item"}

func eval(source, input string) (string, error) {
	e, err := Parse(source, variables)
	if err != nil {
		return "", err
	}
	v, err := Decode([]byte(input))
	if err != nil {
		return "", err
	}
	out, err := e.Eval(context.Background(), v, map[string]any{"user": "eve"}, 7)
	if err != nil {
		return "", err
	}
	b, err := Encode(out)
	return string(b), err
}

// What is supported means what jq means by it.
func TestExpressions(t *testing.T) {
	for _, c := range [][3]string{ // source, input, output
		{`.a.b`, `{"a":{"b":1}}`, `1`},
		{`{name, user: $context.user, n: ($item * 6), list: [.tags[] | ascii_upcase]}`, `{"name":"x","tags":["a","b"]}`,
			`{"list":["A","B"],"n":42,"name":"x","user":"eve"}`},
		{`"\(.a)-\($item)"`, `{"a":"b"}`, `"b-7"`},
		{`. + {x: 1}`, `{"a":"b"}`, `{"a":"b","x":1}`},
		{`.a - [2, 3]`, `{"a":[1,2,3,4]}`, `[1,4]`},
		{`.a - 1`, `{"a":3}`, `2`},
		{`if .n > 3 then "many" elif .n > 1 then "some" else "few" end`, `{"n":2}`, `"some"`},
		{`[.[] | select(.ok)] | length`, `[{"ok":true},{"ok":false}]`, `1`},
		{`sort_by(.n) | map(.n)`, `[{"n":3},{"n":1}]`, `[1,3]`},
		{`group_by(.k) | map(length)`, `[{"k":1},{"k":2},{"k":1}]`, `[2,1]`},
		{`with_entries(.value += 1)`, ``, `refused: assigns`},
		{`with_entries(select(.value > 1))`, `{"a":1,"b":2}`, `{"b":2}`},
		{`del(.a, .b.c)`, `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3}}`},
		{`.a // "none"`, `{}`, `"none"`},
		{`. as {a: $x, b: [$y]} | $x + $y`, `{"a":1,"b":[2]}`, `3`},
		{`[.. | numbers] | add`, `{"a":1,"b":[2,3]}`, `6`},
		{`@uri "q=\(.q)"`, `{"q":"a b&c"}`, `"q=a%20b%26c"`},
		{`.id | @base64`, `{"id":"x"}`, `"eA=="`},
		{`try error("no") catch .`, `null`, `"no"`},
		{`(.a | contains("ell")), .a | select(. == true)`, `{"a":"hello"}`, `true`},
		{`join(", ")`, `["a","b"]`, `"a, b"`},
		{`.n * 2`, `{"n":12345678901234567890}`, `24691357802469135780`},
		{`.x | not`, `{"x":null}`, `true`},
		{`any(.[]; . > 2) and all(.[]; . > 0)`, `[1,2,3]`, `true`},
		{`fromjson | .a`, `"{\"a\":1}"`, `1`},
		{`limit(2; .[])`, `[1,2,3]`, `fails: more than one value`},
		{`.[]`, `[]`, `fails: no value`},
		{`.a.b`, `{"a":1}`, `fails: the expression fails`},
		{`. * 2`, `"text"`, `fails: only numbers`},
		{`$nobody`, `null`, `refused: cannot be used here`},
		{`.a.`, `null`, `refused: not valid jq`},
	} {
		got, err := eval(c[0], map[bool]string{true: "null", false: c[1]}[c[1] == ""])
		if want, fails := strings.CutPrefix(c[2], "fails: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s, %v", c[0], got, err)
			}
			continue
		}
		if want, refused := strings.CutPrefix(c[2], "refused: "); refused {
			if _, err := Parse(c[0], variables); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", c[0], err)
			}
			continue
		}
		if err != nil || got != c[2] {
			t.Errorf("%s yields %s, want %s; %v", c[0], got, c[2], err)
		}
	}
}

// What could take long, or depends on more than its input, is refused.
func TestRefused(t *testing.T) {
	for _, source := range []string{
		`def f: f; f`, `reduce .[] as $x (0; . + $x)`, `foreach .[] as $x (0; . + $x)`, `label $out | 1, break $out`,
		`[range(1000000000)]`, `[limit(10; repeat(1))]`, `until(false; .)`, `while(true; .)`, `recurse(. + 1)`, `[combinations(9)]`,
		`.[1000000000] = 1`, `.a |= 1`, `.a += 1`, `.s *= 1000000`, `setpath([1000000000]; 1)`, `pick(.[1000000000])`, `transpose`,
		`now`, `env`, `$ENV`, `input`, `inputs`, `debug`, `halt`, `halt_error`, `localtime`, `input_filename`, `$__loc__`, `builtins`,
		`import "a" as a; 1`, `include "a"; 1`, `gsub("a"; "b")`, `del(.[])`, `del(.. )`, `del(.[range(3)])`, `walk(.)`, `ltrimstr`,
		`_headstart_value`, `getpath(["a"]) |= 1`, `tostream`, `implode`, `@sh`, `infinite`, `splits("a")`, `scan("")`, `capture("a"; "g")`, `limit(1; .; .)`,
	} {
		if e, err := Parse(source, variables); err == nil {
			t.Errorf("%s is taken: %v", source, e)
		}
	}
}

// No expression takes long, or makes much, whatever it is evaluated on.
func TestExpressionsAreBounded(t *testing.T) {
	doubled := func(step string, times int) string { return "." + strings.Repeat(" | "+step, times) }
	large := `[` + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") + `]`
	long := `"` + strings.Repeat("x", SizeLimit-100) + `"`
	for name, c := range map[string]struct{ source, input string }{
		"a text that is doubled":                {doubled(`. + .`, 60), `"x"`},
		"an array that is doubled":              {doubled(`. + .`, 60), `[1]`},
		"arrays in arrays":                      {doubled(`[., .]`, 60) + ` | tojson`, `1`},
		"objects in objects":                    {doubled(`{a: ., b: .}`, 60) + ` | tojson`, `1`},
		"arrays of all":                         {doubled(`[.[], .[]]`, 60), `[1]`},
		"outputs of outputs":                    {`[` + strings.Repeat(`.[] as $a | `, 1) + strings.Repeat(`(.[] | .) as $b | `, 8) + `1]`, large},
		"maps of maps":                          {doubled(`map(., .)`, 60), `[1]`},
		"texts in texts":                        {doubled(`"\(.)\(.)"`, 60), `"x"`},
		"a number that is squared":              {doubled(`. * .`, 60), `10`},
		"elements that are compared with all":   {`. - (. | map(. + 1))`, large},
		"contains":                              {`contains(map(. + 1))`, large},
		"join":                                  {`. as $all | "` + strings.Repeat("x", 1000) + `" as $s | join($s)`, large},
		"keys":                                  {`. as $all | sort_by($all)`, large},
		"groups":                                {`. as $all | group_by([$all])`, large},
		"a long text in an array":               {`[., ., .]`, long},
		"JSON in JSON":                          {doubled(`tojson`, 40), `"\""`},
		"deep":                                  {doubled(`[.]`, 300), `1`},
		"all pairs":                             {`[.[] as $a | .[] as $b | $a + $b] | length`, large},
		"a regular expression":                  {`test("(x+x+)+y")`, long},
		"a regular expression that matches all": {`split("x*"; null) | length`, long},
		"a text that is split into nothing":     {`split("")`, long},
		"all of all":                            {`[..] | [.. , ..] | [.., ..]`, large},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			got, err := eval(c.source, c.input)
			if took := time.Since(began); took > hangs {
				t.Errorf("it takes %s", took)
			}
			if err == nil && len(got) > 8*SizeLimit {
				t.Errorf("it yields %d bytes", len(got))
			}
		})
	}
}

// Which variables an expression uses is known before it is evaluated.
func TestUses(t *testing.T) {
	for source, want := range map[string]string{
		`1`: "", `$context.a`: "$context", `.a`: ".", `{a}`: ".", `{$item}`: "$item", `[$item, $context]`: "$context $item",
		`.a[$item]`: ". $item", `"\($item)"`: "$item", `if true then $item else 1 end`: "$item", `length`: ".", `@json "\($context)"`: "$context",
		`map($item)`: ". $item", `{a: $context} | .a`: ". $context", `$context as {a: $item} | 1`: "$context",
	} {
		e, err := Parse(source, variables)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var uses []string
		for _, name := range []string{".", "$context", "$item"} {
			if e.Uses(name) {
				uses = append(uses, name)
			}
		}
		if got := strings.Join(uses, " "); got != want {
			t.Errorf("%s uses %q, want %q", source, got, want)
		}
	}
}

// Values come back as they were.
func TestValues(t *testing.T) {
	for _, text := range []string{`null`, `true`, `-0.5`, `12345678901234567890123`, `"<&>"`, `{"a":[1,{"b":null}]}`, `1e+100`} {
		v, err := Decode([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if b, err := Encode(v); err != nil || string(b) != text {
			t.Errorf("%s comes back as %s, %v", text, b, err)
		}
	}
	deep := strings.Repeat("[", depthLimit+2) + strings.Repeat("]", depthLimit+2)
	many := "[" + strings.TrimSuffix(strings.Repeat("1,", PartsLimit+1), ",") + "]"
	for _, text := range []string{``, `{`, `1 2`, `{"a":1}x`, `"` + strings.Repeat("x", SizeLimit) + `"`, deep, many, `1e999`} {
		if v, err := Decode([]byte(text)); err == nil {
			t.Errorf("%.40s is taken: %.40s", text, fmt.Sprint(v))
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, seed := range []string{`.a`, `[.[] | {a: ., b: $item}]`, `sort_by(.a) | map(. + 1)`, `"\(.)" | test("a*")`, `. as [$a] | $a`, `del(.a)`} {
		f.Add(seed, `{"a":[1,2,{"b":"c"}]}`)
	}
	f.Fuzz(func(t *testing.T, source, input string) {
		began := time.Now()
		got, err := eval(source, input)
		if took := time.Since(began); took > hangs {
			t.Errorf("%q takes %s", source, took)
		}
		if err == nil {
			if _, err := Decode([]byte(got)); err != nil {
				t.Errorf("%q yields %.100q: %v", source, got, err)
			}
		}
	})
}

// Runs at work at the same time share what an expression has of its own, such as a constant: nobody may write into it.
func TestValuesAreShared(t *testing.T) {
	made, err := Parse(`{a: {b: [1, 2, 3]}, c: 1}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	uses, err := Parse(`[., $x] | length`, []string{"$x"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				v, err := made.Eval(t.Context(), nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := uses.Eval(t.Context(), v, v); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
