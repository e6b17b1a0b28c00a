// A testee for refdist's conformance suite, to begin with: it answers cases, one JSON object on each line.
//
// It needs Go 1.22 or later, and nothing else.
//
// Put calls of your implementation in place of the first part. The second part carries out the steps of a case; what
// it does not know yet it answers with `skip`, and the end of a run lists that: there you see what comes next.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"sync"
)

var has = []string{"OneDevice", "Mirrored", "Central", "all_reduce"} // cases that need anything else are not sent

// What goes wrong: a kind (value, type, context, ...; "skip": this testee lacks something), and a message.
type failure struct{ kind, message string }

func fail(kind, message string) { panic(failure{kind, message}) }

// What a function panics with, as a failure; nil if it does not.
func attempt(act func()) (wrong *failure) {
	defer func() {
		if raised := recover(); raised != nil {
			failed, ours := raised.(failure)
			if !ours {
				failed = failure{"crash", fmt.Sprint(raised)}
			}
			wrong = &failed
		}
	}()
	act()
	return nil
}

// The implementation: arrays of float32 and int32 with one dimension or none, and replicas that are goroutines.
type array struct {
	dtype string
	shape []int
	data  []float64 // exact for both dtypes
}
type perReplica []any
type function func(i int, in *run, args []any) any

func newArray(dtype string, shape []int, numbers []float64) array {
	data := make([]float64, len(numbers))
	for at, x := range numbers {
		data[at] = float64(float32(x))
		if dtype == "int32" {
			data[at] = float64(int32(int64(x)))
		}
	}
	return array{dtype, shape, data}
}

func constant(value any) array {
	items, isList := value.([]any)
	shape := []int{len(items)}
	if !isList {
		items, shape = []any{value}, []int{}
	}
	numbers, dtypes := []float64{}, map[string]bool{}
	for _, item := range items {
		switch x := item.(type) {
		case int:
			numbers, dtypes["int32"] = append(numbers, float64(x)), true
		case float64:
			numbers, dtypes["float32"] = append(numbers, x), true
		default:
			fail("skip", "arrays of other values")
		}
	}
	if len(dtypes) != 1 {
		fail("skip", "arrays of other values")
	}
	dtype := "float32"
	if dtypes["int32"] {
		dtype = "int32"
	}
	return newArray(dtype, shape, numbers)
}

// The replicas of one call of run; those that run come to each call with an array.
type run struct {
	lock           sync.Mutex
	count, running int
	waiting        map[int]array
	answers        []chan any
	wrong          []failure
}

func (r *run) allReduce(i int, op, value any) array {
	if op != "SUM" {
		fail("skip", "reduce ops other than SUM")
	}
	given, isArray := value.(array)
	if !isArray {
		given = constant(value)
	}
	r.come(func() { r.waiting[i] = given })
	switch answer := (<-r.answers[i]).(type) {
	case array:
		return answer
	default:
		panic(answer)
	}
}

// Changes the run, and answers the calls of the replicas when all that run have come to one.
func (r *run) come(change func()) {
	r.lock.Lock()
	defer r.lock.Unlock()
	change()
	if len(r.waiting) < r.running {
		return
	}
	var answer any
	if len(r.waiting) < r.count {
		answer = failure{"context", "another replica does not come to this call"}
	} else {
		answer = sum(r.waiting)
	}
	for i := range r.waiting {
		r.answers[i] <- answer
	}
	clear(r.waiting)
}

// The sum of the arrays of all replicas, in their order, or a failure.
func sum(given map[int]array) any {
	first := given[0]
	sums := make([]float64, len(first.data))
	for i := range len(given) {
		if given[i].dtype != first.dtype || !slices.Equal(given[i].shape, first.shape) {
			return failure{"value", "the dtypes or shapes of the replicas differ"}
		}
		for at, x := range given[i].data {
			sums[at] += x
		}
	}
	return newArray(first.dtype, first.shape, sums)
}

func runAll(count int, body function, args []any) any {
	r := &run{count: count, running: count, waiting: map[int]array{}}
	results, ended := make([]any, count), sync.WaitGroup{}
	for range count {
		r.answers = append(r.answers, make(chan any, 1))
	}
	for i := range count {
		own := slices.Clone(args)
		for at, arg := range own {
			if parts, several := arg.(perReplica); several {
				own[at] = parts[i]
			}
		}
		ended.Add(1)
		go func() {
			defer ended.Done()
			wrong := attempt(func() { results[i] = body(i, r, own) })
			r.come(func() {
				r.running--
				if wrong != nil {
					r.wrong = append(r.wrong, *wrong)
				}
			})
		}()
	}
	ended.Wait()
	if lacks := slices.IndexFunc(r.wrong, func(raised failure) bool { return raised.kind == "skip" }); lacks >= 0 {
		panic(r.wrong[lacks])
	}
	if len(r.wrong) > 0 {
		panic(r.wrong[0])
	}
	for _, result := range results {
		if _, isArray := result.(array); !isArray {
			fail("skip", "replicas that return anything but arrays")
		}
	}
	if count == 1 {
		return results[0]
	}
	return perReplica(results)
}

// The steps of a case. `i` is the number of the replica that carries them out, `in` its run, which is nil outside.
type object = map[string]any
type program struct{ replicas int }

func known(description object, keys ...string) {
	for key := range description {
		if !slices.Contains(keys, key) {
			fail("skip", "the key "+key)
		}
	}
}

func items(tree any) []any { list, _ := tree.([]any); return list }

func (p *program) steps(steps []any, values map[any]any, i int, in *run) {
	for _, item := range steps {
		step := item.(object)
		known(step, "call", "method", "get", "operator", "args", "kwargs", "id", "is")
		name, args := "", []any{}
		for _, kind := range []string{"call", "method", "get", "operator"} {
			if operation, there := step[kind]; there {
				name = fmt.Sprint(kind, " ", operation)
			}
		}
		for _, tree := range items(step["args"]) {
			args = append(args, p.value(tree, values))
		}
		kwargs, _ := step["kwargs"].(object)
		for key, tree := range kwargs {
			name, args = name+" "+key, append(args, p.value(tree, values))
		}
		result := p.step(name, args, i, in)
		if is, there := step["is"]; there && !reflect.DeepEqual(result, p.value(is, values)) {
			fail("crash", "the program goes another way")
		}
		values[step["id"]] = result
	}
}

func (p *program) step(name string, args []any, i int, in *run) any {
	switch {
	case name == "call tf.constant" && len(args) == 1:
		return constant(args[0])
	case name == "call tf.distribute.get_replica_context" && in != nil:
		return in
	case name == "method all_reduce" && args[0] == any(in) && len(args) == 3:
		return in.allReduce(i, args[1], args[2])
	case name == "get replica_id_in_sync_group" && args[0] == any(in):
		return i
	case (name == "method run" || name == "method run args") && args[0] == any(p) && in == nil:
		if _, isList := args[len(args)-1].([]any); len(args) == 3 && !isList {
			fail("value", "the arguments are not in a list")
		}
		body, isFunction := args[1].(function)
		if !isFunction {
			fail("type", "this is not a function")
		}
		return runAll(p.replicas, body, items(append(args, []any{})[2]))
	case name == "operator int":
		if number, isInt := args[0].(int); isInt {
			return number
		}
	}
	panic(failure{"skip", name})
}

func (p *program) value(tree any, values map[any]any) any {
	fields, isObject := tree.(object)
	if !isObject {
		return tree
	}
	for kind, content := range fields {
		switch number, isNumber := content.(float64); {
		case kind == "ref":
			return values[content]
		case kind == "int" && isNumber:
			return int(number)
		case kind == "float" && isNumber:
			return number
		case kind == "function":
			bodies := slices.Clone(items(content.(object)["bodies"]))
			lock := &sync.Mutex{}
			return function(func(i int, in *run, args []any) any {
				lock.Lock()
				at := slices.IndexFunc(bodies, func(body any) bool {
					replica, there := body.(object)["replica"]
					return !there || replica == float64(i)
				})
				body := bodies[at].(object)
				if _, there := body["replica"]; there {
					bodies = slices.Delete(bodies, at, at+1)
				}
				lock.Unlock()
				return p.call(body, values, i, in, args)
			})
		case kind == "name" && content == "strategy":
			return p
		case kind == "ints" || kind == "floats" || kind == "list" || kind == "tuple":
			list := []any{}
			for _, item := range items(content) {
				if kind == "ints" || kind == "floats" {
					item = object{kind[:len(kind)-1]: item}
				}
				list = append(list, p.value(item, values))
			}
			return list
		}
		fail("skip", "the value "+kind)
	}
	return nil
}

func (p *program) call(body object, outer map[any]any, i int, in *run, args []any) any {
	known(body, "replica", "parameters", "steps", "returns")
	values, parameters := maps.Clone(outer), items(body["parameters"])
	if len(parameters) != len(args) {
		fail("type", "another number of arguments")
	}
	for at, id := range parameters {
		values[id] = args[at]
	}
	p.steps(items(body["steps"]), values, i, in)
	return p.value(body["returns"], values)
}

// A value as a result.
func asResult(value any) any {
	switch value := value.(type) {
	case perReplica:
		parts := []any{}
		for _, part := range value {
			parts = append(parts, asResult(part))
		}
		return object{"per_replica": parts}
	case array:
		for _, x := range value.data {
			if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 && math.Signbit(x) {
				fail("skip", "numbers that JSON lacks")
			}
		}
		return object{"dtype": value.dtype, "shape": value.shape, "data": value.data}
	}
	panic(failure{"skip", "other results than arrays"})
}

func answer(asked object) object {
	programs, there := asked["programs"].([]any)
	if !there {
		return object{"skip": asked["only_python"]}
	}
	p := &program{int(asked["strategy"].(object)["replicas"].(float64))}
	values, pairs := map[any]any{}, []any{}
	for _, item := range items(programs[0]) {
		statement := item.(object)
		number := statement["statement"]
		observed := slices.Contains(items(asked["observe"]), number)
		var result any
		wrong := attempt(func() {
			p.steps(items(statement["steps"]), values, 0, nil)
			if observed {
				result = asResult(p.value(statement["value"], values))
			}
		})
		if wrong != nil && wrong.kind == "skip" {
			return object{"skip": wrong.message}
		}
		if wrong != nil {
			result = object{"error": wrong.kind, "message": wrong.message}
		}
		if observed || wrong != nil {
			pairs = append(pairs, []any{number, result})
		}
		if wrong != nil && !observed {
			break
		}
	}
	return object{"answers": []any{pairs}}
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	lines.ReadString('\n') // what the suite says of itself
	say := json.NewEncoder(os.Stdout)
	say.Encode(object{"protocol": 1, "name": "mine", "version": "0.1", "has": has})
	for questions := json.NewDecoder(lines); questions.More(); {
		var question object
		if err := questions.Decode(&question); err != nil {
			panic(err)
		}
		said := answer(question["case"].(object))
		said["id"] = question["id"]
		say.Encode(said)
	}
}
