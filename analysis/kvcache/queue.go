package kvcache

// queue holds the requests that wait, first come first.
type queue struct {
	requests []Request
	first    int // of requests; those before it have gone
}

func (q *queue) len() int { return len(q.requests) - q.first }

// head is the request that is next. It stays valid until the next push or pop.
func (q *queue) head() *Request { return &q.requests[q.first] }

func (q *queue) push(r Request) { q.requests = append(q.requests, r) }

// pop drops the head. What has gone is never more than half of what is held.
func (q *queue) pop() {
	q.requests[q.first] = Request{}
	q.first++
	if 2*q.first >= len(q.requests) {
		n := copy(q.requests, q.requests[q.first:])
		clear(q.requests[n:])
		q.requests = q.requests[:n]
		q.first = 0
	}
}
