package pickle

// mark ends the newest mark and returns the height that it was set at.
func (d *Decoder) mark() (int, error) {
	if len(d.marks) == 0 {
		return 0, d.fail("no mark is set")
	}
	at := d.marks[len(d.marks)-1]
	d.marks = d.marks[:len(d.marks)-1]
	d.Budget += markBytes
	return at, nil
}

// height is how many values lie above the newest mark.
func (d *Decoder) height() int {
	if len(d.marks) == 0 {
		return len(d.stack)
	}
	return len(d.stack) - d.marks[len(d.marks)-1]
}

func (d *Decoder) top() (Value, error) {
	if d.height() == 0 {
		return Value{}, d.fail("nothing is on the stack")
	}
	return d.stack[len(d.stack)-1], nil
}

func (d *Decoder) pop() (Value, error) {
	top, err := d.top()
	if err == nil {
		d.stack = d.stack[:len(d.stack)-1]
	}
	return top, err
}

// content is where the values for a container begin, the container being right below.
func (d *Decoder) content(many bool, single int) (from int, err error) {
	if many {
		if from, err = d.mark(); err != nil {
			return 0, err
		}
	} else if from = len(d.stack) - single; d.height() <= single {
		return 0, d.fail("nothing to add to")
	}
	if from < 1 {
		return 0, d.fail("nothing to add to")
	}
	return from, nil
}

func (d *Decoder) append(op byte) error {
	from, err := d.content(op == 'e', 1)
	if err != nil {
		return err
	}
	if d.stack[from-1].Kind != KindList {
		return d.fail("values for a list, and no list")
	}
	at := d.stack[from-1].N
	for _, v := range d.stack[from:] {
		found := d.Dict(v)
		if found == nil && v.Kind == KindDict {
			continue // handed over
		}
		if found != nil && found.entry && d.Entry != nil {
			if err := d.handOver(v, found, d.place(from-1, d.marks)); err != nil {
				return err
			}
			continue
		}
		if err := d.Keep(16); err != nil {
			return err
		}
		items := d.openList(at)
		*items = append(*items, v)
	}
	d.stack = d.stack[:from]
	return nil
}

// handOver passes an entry on and forgets it.
func (d *Decoder) handOver(v Value, found *Dict, list int) error {
	if list != noList {
		if err := d.Entry(found.items, list); err != nil {
			return d.fail("%w", err)
		}
	}
	*found = Dict{items: found.items[:0], generation: found.generation + 1}
	if found.generation < mostGenerations {
		d.spare = append(d.spare, uint64(uint32(v.N)))
	}
	return nil
}

// inList says whether the value at a height of the stack waits there, with others, to be added
// to a list, and the height of that list. Torch's own pickles add all entries of a trace at once. Python's add the only entry of a
// trace to the list right below it, which itself waits with others for the mark's list.
func (d *Decoder) inList(at int) (list int, ok bool) {
	if len(d.marks) == 0 {
		return 0, false
	}
	from := d.marks[len(d.marks)-1]
	only := from < at && d.stack[at-1].Kind == KindList
	return from - 1, 0 < from && from <= at && !only && d.stack[from-1].Kind == KindList
}

// noList is the place of a list that is in no list.
const noList = -1

// place is which element of the list around it the list at a height of the stack will be, given
// the marks below it; noList if there is no list around it.
func (d *Decoder) place(at int, marks []int) int {
	from := 0
	if n := len(marks); n > 0 {
		from = marks[n-1]
	}
	if from > 0 && d.stack[from-1].Kind == KindList {
		return len(d.Items(d.stack[from-1])) + at - from
	}
	if at > 0 && d.stack[at-1].Kind == KindList {
		return len(d.Items(d.stack[at-1]))
	}
	return noList
}

func (d *Decoder) setItems(op byte) error {
	from, err := d.content(op == 'u', 2)
	if err != nil {
		return err
	}
	found := d.Dict(d.stack[from-1])
	if found == nil || (len(d.stack)-from)%2 != 0 {
		return d.fail("pairs for a dictionary, and no dictionary")
	}
	if handed, err := d.handPairs(from, found); handed || err != nil {
		return err
	}
	grown := len(found.items) + len(d.stack) - from
	if grown > mostItems {
		return d.fail("a dictionary of %d keys", grown/2)
	}
	if grown > cap(found.items) {
		if err := d.Keep(16 * int64(grown)); err != nil {
			return err
		}
	}
	found.items = append(found.items, d.stack[from:]...)
	found.Note = 0
	for i := from; i < len(d.stack); i += 2 {
		found.entry = found.entry || d.stack[i] == Value{KindText, entryKey} && d.stack[i+1].Kind == KindText
	}
	d.stack = d.stack[:from]
	if at, in := d.inList(from - 1); in && found.entry && d.Entry != nil {
		return d.handOver(d.stack[from-1], found, d.place(at, d.marks[:len(d.marks)-1]))
	}
	return nil
}

// handPairs hands an entry over whose pairs are all on the stack, and which waits there for its list: so
// torch and Python write them.
func (d *Decoder) handPairs(from int, found *Dict) (handed bool, err error) {
	if len(found.items) > 0 || len(d.stack)-from < 2 || d.stack[from] != (Value{KindText, entryKey}) || d.stack[from+1].Kind != KindText || d.Entry == nil {
		return false, nil
	}
	at, in := d.inList(from - 1)
	if !in {
		return false, nil
	}
	place := d.place(at, d.marks[:len(d.marks)-1])
	pairs := d.stack[from:]
	d.stack = d.stack[:from]
	own := found.items
	found.items = pairs
	err = d.handOver(d.stack[from-1], found, place)
	found.items = own
	return true, err
}

func (d *Decoder) remember(op byte) error {
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	n := littleEndian(b)
	if op == 'h' || op == 'j' {
		v, kept := d.memo.get(n)
		if !kept {
			return d.fail("value %d was not kept", n)
		}
		return d.push(v.Kind, v.N)
	}
	if op == 0x94 {
		n = d.memo.count
	}
	top, err := d.top()
	if err != nil {
		return err
	}
	if grown := int64(n) - int64(d.memo.count) + 1; grown > 0 {
		if err := d.Keep(8 * grown); err != nil {
			return err
		}
		d.memo.grow(n+1, memoAbsent)
	}
	if _, ok := packed(top); !ok {
		if err := d.Keep(32); err != nil {
			return err
		}
	}
	d.memo.set(n, top)
	return nil
}

// Field is the value of a key, none where there is no such key.
func (d *Decoder) Field(found *Dict, key string) Value {
	for i := 0; found != nil && i+1 < len(found.items); i += 2 {
		if k := found.items[i]; k.Kind == KindText && d.texts[k.N] == key {
			return found.items[i+1]
		}
	}
	return Value{}
}

// Value is the value of a known key, by its number; none where there is no such key.
func (found *Dict) Value(key uint64) Value {
	for i := 0; found != nil && i+1 < len(found.items); i += 2 {
		if found.items[i] == (Value{KindText, key}) {
			return found.items[i+1]
		}
	}
	return Value{}
}

// Text is a text, or "" of another value.
func (d *Decoder) Text(v Value) string {
	if v.Kind != KindText {
		return ""
	}
	return d.texts[v.N]
}

// Items are those of a list or a tuple.
func (d *Decoder) Items(v Value) []Value {
	switch v.Kind {
	case KindList:
		items, _, _ := d.List(v)
		return items
	case KindTuple:
		return d.tuples[v.N]
	}
	return nil
}
