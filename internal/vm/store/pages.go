package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// The layout of a bbolt file, version 2, as written by little-endian machines (go.etcd.io/bbolt, internal/common). Pages of a fixed
// size; the first two are copies of the meta page, of which the valid one with the higher transaction counts.
const (
	pageHeader    = 16 // id 8, flags 2, count 2, overflow 4
	element       = 16
	bucketHeader  = 16 // root page 8, sequence 8
	metaLength    = 64
	pageBranch    = 0x01
	pageLeaf      = 0x02
	pageMeta      = 0x04
	pageFreelist  = 0x10
	leafBucket    = 0x01
	metaMagic     = 0xED0CDAED
	metaVersion   = 2
	noFreelist    = math.MaxUint64
	maxFileLength = 1 << 30
)

// pages walks a database file without the database: no memory map, no panic, and no end that is not reached.
type pages struct {
	file  io.ReaderAt
	size  int64
	page  int64
	count uint64
	seen  map[uint64]bool
	// visit gets every key and value below a bucket, whose path it is told.
	visit func(bucket string, key, value []byte) error
}

// walkPages checks the whole file: the meta pages, that every page is used once, that keys are in order, and what visit says of the values.
func walkPages(file io.ReaderAt, size int64, visit func(bucket string, key, value []byte) error) error {
	if size > maxFileLength {
		return fmt.Errorf("it has %d bytes; at most %d are looked at", size, maxFileLength)
	}
	p := &pages{file: file, size: size, seen: map[uint64]bool{0: true, 1: true}, visit: visit}
	root, freelist, err := p.meta()
	if err != nil {
		return err
	}
	if err := p.bucket("", root, 0); err != nil {
		return err
	}
	return p.freelist(freelist)
}

// meta finds the meta page that counts.
func (p *pages) meta() (root, freelist uint64, err error) {
	var best []byte
	try := func(at int64) {
		b := make([]byte, pageHeader+metaLength)
		if _, err := p.file.ReadAt(b, at); err != nil || binary.LittleEndian.Uint16(b[8:])&pageMeta == 0 {
			return
		}
		m := b[pageHeader:]
		sum := fnv.New64a()
		sum.Write(m[:metaLength-8])
		size := int64(binary.LittleEndian.Uint32(m[8:]))
		switch {
		case binary.LittleEndian.Uint32(m) != metaMagic || binary.LittleEndian.Uint32(m[4:]) != metaVersion,
			binary.LittleEndian.Uint64(m[56:]) != sum.Sum64(), at != 0 && at != size, size < 512 || size&(size-1) != 0:
			return
		}
		if best == nil || binary.LittleEndian.Uint64(m[48:]) > binary.LittleEndian.Uint64(best[48:]) {
			best = m
		}
	}
	try(0)
	for at := int64(1 << 10); at <= 1<<16; at <<= 1 {
		try(at)
	}
	if best == nil {
		return 0, 0, errors.New("neither of its two heads is whole")
	}
	p.page = int64(binary.LittleEndian.Uint32(best[8:]))
	p.count = binary.LittleEndian.Uint64(best[40:])
	if p.count > uint64(p.size/p.page) {
		return 0, 0, fmt.Errorf("it has %d pages of %d that there should be", p.size/p.page, p.count)
	}
	return binary.LittleEndian.Uint64(best[16:]), binary.LittleEndian.Uint64(best[32:]), nil
}

// read gives a page with its overflow, and marks it used.
func (p *pages) read(id uint64) ([]byte, error) {
	if id >= p.count {
		return nil, fmt.Errorf("page %d is not there", id)
	}
	head := make([]byte, pageHeader)
	if _, err := p.file.ReadAt(head, int64(id)*p.page); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || id+more >= p.count {
		return nil, fmt.Errorf("page %d is not itself", id)
	}
	for i := id; i <= id+more; i++ {
		if p.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		p.seen[i] = true
	}
	b := make([]byte, int64(more+1)*p.page)
	if _, err := p.file.ReadAt(b, int64(id)*p.page); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return b, nil
}

const maxNesting = 64 // of pages and buckets in each other

func (p *pages) bucket(path string, root uint64, depth int) error {
	last := []byte(nil)
	return p.tree(path, root, depth, &last)
}

func (p *pages) tree(path string, id uint64, depth int, last *[]byte) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	return p.node(path, b, depth, last)
}

// node looks at a page, or at what a small bucket has in place of one. last is the key before it.
func (p *pages) node(path string, b []byte, depth int, last *[]byte) error {
	if depth > maxNesting {
		return errors.New("its pages are nested too deep")
	}
	flags, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	if flags != pageBranch && flags != pageLeaf || pageHeader+count*element > len(b) {
		return errors.New("a page is neither a branch nor a leaf")
	}
	for i := range count {
		at := pageHeader + i*element
		e := b[at : at+element]
		if flags == pageBranch {
			key, err := part(b, at, binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]))
			if err != nil {
				return err
			}
			before := *last
			if err := p.tree(path, binary.LittleEndian.Uint64(e[8:]), depth+1, last); err != nil {
				return err
			}
			// A branch's key is at most the first key below it; it may be older than that.
			if before != nil && bytes.Compare(key, before) <= 0 || *last != nil && bytes.Compare(key, *last) > 0 {
				return errors.New("the keys of a branch are out of order")
			}
			continue
		}
		if err := p.leaf(path, b, at, depth, last); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) leaf(path string, b []byte, at, depth int, last *[]byte) error {
	e := b[at : at+element]
	position, keyLength := binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:])
	key, err := part(b, at, position, keyLength)
	if err != nil {
		return err
	}
	value, err := part(b, at, position+keyLength, binary.LittleEndian.Uint32(e[12:]))
	switch {
	case err != nil:
		return err
	case len(key) == 0 || *last != nil && bytes.Compare(key, *last) <= 0:
		return errors.New("the keys of a leaf are out of order")
	}
	*last = key
	switch binary.LittleEndian.Uint32(e) {
	case 0:
		return p.visit(path, key, value)
	case leafBucket:
	default:
		return fmt.Errorf("key %q is of no kind", key)
	}
	if len(value) < bucketHeader {
		return fmt.Errorf("bucket %q is cut short", key)
	}
	below := path + "/" + string(key)
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return p.bucket(below, root, depth+1)
	}
	if len(value) < bucketHeader+pageHeader {
		return fmt.Errorf("bucket %q is cut short", key)
	}
	first := []byte(nil)
	return p.node(below, value[bucketHeader:], depth+1, &first)
}

// part is what lies length bytes from the position, which counts from the element.
func part(b []byte, at int, position, length uint32) ([]byte, error) {
	from := uint64(at) + uint64(position)
	if from+uint64(length) > uint64(len(b)) {
		return nil, errors.New("a key or value lies outside of its page")
	}
	return b[from : from+uint64(length)], nil
}

// freelist checks that what is free is there and not used.
func (p *pages) freelist(id uint64) error {
	if id == noFreelist {
		return nil
	}
	b, err := p.read(id)
	if err != nil {
		return fmt.Errorf("the list of free pages: %w", err)
	}
	if binary.LittleEndian.Uint16(b[8:]) != pageFreelist {
		return errors.New("the list of free pages is none")
	}
	count, b := uint64(binary.LittleEndian.Uint16(b[10:])), b[pageHeader:]
	if count == math.MaxUint16 {
		count, b = binary.LittleEndian.Uint64(b), b[8:]
	}
	if count > uint64(len(b)/8) {
		return errors.New("the list of free pages is cut short")
	}
	for i := range count {
		free := binary.LittleEndian.Uint64(b[i*8:])
		if free >= p.count || p.seen[free] {
			return fmt.Errorf("page %d is free and used", free)
		}
		p.seen[free] = true
	}
	return nil
}
