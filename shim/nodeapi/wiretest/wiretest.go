// Package wiretest makes messages as a neighbouring version of Headstart sends them.
package wiretest

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknown is the number of a field that no message has.
const unknown = 1000

// Newer adds a field that this version does not know to m, and to each message in it.
func Newer[M proto.Message](m M) M {
	grow(m.ProtoReflect())
	return m
}

func grow(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { grow(v.Message()); return true })
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				grow(v.List().Get(i).Message())
			}
		default:
			grow(v.Message())
		}
		return true
	})
	field := protowire.AppendTag(nil, unknown, protowire.BytesType)
	m.SetUnknown(append(m.GetUnknown(), protowire.AppendString(field, "news")...))
}
