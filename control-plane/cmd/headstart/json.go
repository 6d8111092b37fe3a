package main

import (
	"encoding/json"
	"io"
	"reflect"
)

// printJSON prints data for scripts. A list without elements is [], never null: scripts iterate.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(withLists(v))
}

// printJSONLine is for data without an end.
func printJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(withLists(v)) }

// withLists is a copy of v in which no list is nil.
func withLists(v any) any {
	copied := reflect.New(reflect.TypeOf(v))
	copied.Elem().Set(reflect.ValueOf(v))
	fillLists(copied.Elem())
	return copied.Interface()
}

// fillLists replaces nil slices by empty ones.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fillLists(field)
			}
		}
	case reflect.Slice:
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	}
}
