package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keys are the members that an object may have, and who looks at their values; nil: nobody.
type keys map[string]func(path string, v any) error

// within looks at an object's members. An unknown one is refused: the parser would pass over it.
func (k keys) within(path string, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return wrong(path, "the value is no object")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		look, known := k[name]
		at := path + "/" + escape(name)
		if !known {
			return wrong(at, "%q is not supported here; what is: %s", name, strings.Join(slices.Sorted(maps.Keys(k)), ", "))
		}
		if look == nil {
			continue
		}
		if err := look(at, m[name]); err != nil {
			return err
		}
	}
	return nil
}

// each looks at all members of an object, or elements of an array.
func each(look func(path string, v any) error) func(path string, v any) error {
	return func(path string, v any) error {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if err := look(path+"/"+escape(name), v[name]); err != nil {
					return err
				}
			}
		case []any:
			for i, one := range v {
				if err := look(fmt.Sprintf("%s/%d", path, i), one); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// orName looks at what is no name of something in `use`.
func orName(look func(path string, v any) error) func(path string, v any) error {
	return func(path string, v any) error {
		if _, name := v.(string); name {
			return nil
		}
		return look(path, v)
	}
}

var (
	from    = keys{"from": nil}.within
	as      = keys{"as": nil}.within
	timeout = orName(keys{"after": nil}.within)
	fault   = keys{"type": nil, "status": nil, "title": nil, "detail": nil, "instance": nil}.within
	retry   = keys{"when": nil, "exceptWhen": nil, "delay": nil, "jitter": keys{"from": nil, "to": nil}.within,
		"backoff": keys{"constant": nothing, "linear": nothing, "exponential": nothing}.within,
		"limit":   keys{"attempt": keys{"count": nil}.within, "duration": nil}.within}.within
	endpoint = orName(keys{"uri": nil}.within)
	document = keys{
		"document": keys{"dsl": nil, "namespace": nil, "name": nil, "version": nil, "title": nil, "summary": nil, "tags": nil, "metadata": nil}.within,
		"input":    from, "output": as, "timeout": timeout, "do": tasks,
		"use": keys{"errors": each(fault), "retries": each(retry), "timeouts": each(timeout)}.within,
	}
)

func nothing(path string, v any) error {
	if v == nil {
		return nil
	}
	return keys{}.within(path, v)
}

// check refuses what the DSL has and Headstart does not, and what neither has.
func check(d map[string]any) error {
	return document.within("", d)
}

// tasks looks at a list of tasks.
func tasks(path string, v any) error {
	all, ok := v.([]any)
	if !ok {
		return wrong(path, "tasks are a list, of one name each: [ - name: { ... } ]")
	}
	return each(func(path string, v any) error {
		m, _ := v.(map[string]any)
		if len(m) != 1 {
			return wrong(path, "a task of a list has one name: - name: { ... }")
		}
		return each(task)(path, m)
	})(path, all)
}

// common is what each task may have.
var common = keys{"if": nil, "input": from, "output": as, "export": as, "timeout": timeout, "then": nil, "metadata": nil}

// kinds are what tasks do, by the member that says it, with what else they have.
var kinds map[string]keys

func init() { // since tasks have tasks
	kinds = map[string]keys{
		"call":   {"call": call, "with": with},
		"do":     {"do": tasks},
		"switch": {"switch": each(each(keys{"when": nil, "then": nil}.within))},
		"fork":   {"fork": keys{"branches": tasks, "compete": nil}.within},
		"for":    {"for": keys{"each": nil, "in": nil, "at": nil}.within, "while": nil, "do": tasks},
		"set":    {"set": nil},
		"try": {"try": tasks, "catch": keys{"errors": keys{"with": keys{"type": nil, "status": nil, "instance": nil, "title": nil, "details": nil}.within}.within,
			"as": nil, "when": nil, "exceptWhen": nil, "retry": orName(retry), "do": tasks}.within},
		"raise": {"raise": keys{"error": orName(fault)}.within},
		"wait":  {"wait": nil},
	}
}

func task(path string, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return wrong(path, "the task is no object")
	}
	var is []string
	for name := range kinds {
		if _, has := m[name]; has && !(name == "do" && m["for"] != nil) {
			is = append(is, name)
		}
	}
	slices.Sort(is)
	switch {
	case len(is) == 0:
		for name := range m {
			if _, shared := common[name]; !shared {
				return wrong(path+"/"+escape(name), "%q is not supported; a task has one of %s", name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
			}
		}
		return wrong(path, "a task has one of %s", strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	case len(is) > 1:
		return wrong(path, "the task has both %s and %s; it does one of them", is[0], is[1])
	}
	all := maps.Clone(common)
	maps.Copy(all, kinds[is[0]])
	return all.within(path, m)
}

func call(path string, v any) error {
	if v != "http" {
		return wrong(path, "calls of %v are not supported, but of http", v)
	}
	return nil
}

var with = keys{"method": nil, "endpoint": endpoint, "headers": nil, "body": nil, "query": nil, "output": nil, "redirect": nil}.within
