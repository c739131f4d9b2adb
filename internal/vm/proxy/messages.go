package proxy

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// frame is a message that nobody has parsed.
type frame struct{ body []byte }

// rawCodec passes messages as the bytes they are. Its name is protobuf's, because that is what the bytes hold.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("raw codec: %T is not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.body)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("raw codec: %T is not a frame", v)
	}
	f.body = data.Materialize() // grpc takes its buffers back
	return nil
}

// eachField calls visit with every field of a message's top level: its number, type, whole bytes (tag included) and, for what has a
// length, its content. It stops at the first error, and at what is not protobuf.
func eachField(msg []byte, visit func(num protowire.Number, typ protowire.Type, whole, content []byte) error) error {
	for len(msg) > 0 {
		num, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var content []byte
		if typ == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(msg[tag:])
		}
		if err := visit(num, typ, msg[:tag+size], content); err != nil {
			return err
		}
		msg = msg[tag+size:]
	}
	return nil
}

// stringField gives the last string of that number on the top level, as protobuf does; "" where there is none or the message is none.
func stringField(msg []byte, want protowire.Number) string {
	var out []byte
	err := eachField(msg, func(num protowire.Number, typ protowire.Type, _, content []byte) error {
		if num == want && typ == protowire.BytesType {
			out = content
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return string(out)
}

// editStrings replaces the strings that lie at a path of field numbers (repeated fields all of them) and leaves every other byte
// as it was. A message without a change is returned itself.
func editStrings(msg []byte, path []protowire.Number, edit func(string) string) ([]byte, error) {
	var out []byte
	kept := 0 // msg[:kept] is in out, once there is an out
	at := 0
	err := eachField(msg, func(num protowire.Number, typ protowire.Type, whole, content []byte) error {
		start := at
		at += len(whole)
		if num != path[0] || typ != protowire.BytesType {
			return nil
		}
		var changed []byte
		if len(path) == 1 {
			old := string(content)
			s := edit(old)
			if s == old {
				return nil
			}
			changed = []byte(s)
		} else {
			var err error
			if changed, err = editStrings(content, path[1:], edit); err != nil {
				return err
			}
			if len(changed) == len(content) && (len(content) == 0 || &changed[0] == &content[0]) {
				return nil
			}
		}
		out = append(out, msg[kept:start]...)
		out = protowire.AppendTag(out, num, typ)
		out = protowire.AppendBytes(out, changed)
		kept = at
		return nil
	})
	if err != nil {
		return nil, err
	}
	if kept == 0 {
		return msg, nil
	}
	return append(out, msg[kept:]...), nil
}

// editAll applies editStrings at several paths.
func editAll(msg []byte, paths [][]protowire.Number, edit func(string) string) ([]byte, error) {
	for _, path := range paths {
		var err error
		if msg, err = editStrings(msg, path, edit); err != nil {
			return nil, err
		}
	}
	return msg, nil
}

// listItems are the contents of the first field of a list's answer: its items. In every list of the CRI, plain or streaming, they have
// number 1.
func listItems(body []byte) ([][]byte, error) {
	var out [][]byte
	err := eachField(body, func(num protowire.Number, typ protowire.Type, _, content []byte) error {
		if num == 1 && typ == protowire.BytesType {
			out = append(out, content)
		}
		return nil
	})
	return out, err
}

// appendItem adds one item to a list's answer.
func appendItem(body, item []byte) []byte {
	body = protowire.AppendTag(body, 1, protowire.BytesType)
	return protowire.AppendBytes(body, item)
}

// wholeList tells whether a list's request has no filter: it is empty, or its filter is.
func wholeList(req []byte) bool {
	whole := true
	err := eachField(req, func(num protowire.Number, typ protowire.Type, _, content []byte) error {
		whole = whole && num == 1 && typ == protowire.BytesType && len(content) == 0
		return nil
	})
	return err == nil && whole
}
