package snapshot

import "fmt"

// The opcodes of plain data, as Python's pickletools names them.
const (
	opMark       = '('
	opStop       = '.'
	opNone       = 'N'
	opTrue       = 0x88 // NEWTRUE
	opFalse      = 0x89 // NEWFALSE
	opBinInt     = 'J'
	opBinInt1    = 'K'
	opBinInt2    = 'M'
	opLong1      = 0x8a
	opBinFloat   = 'G'
	opText       = 'X'  // BINUNICODE
	opShortText  = 0x8c // SHORT_BINUNICODE
	opText8      = 0x8d // BINUNICODE8
	opBytes      = 'B'  // BINBYTES
	opShortBytes = 'C'  // SHORT_BINBYTES
	opBytes8     = 0x8e // BINBYTES8
	opEmptyList  = ']'
	opAppend     = 'a'
	opAppends    = 'e'
	opList       = 'l'
	opEmptyTuple = ')'
	opTuple      = 't'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opEmptyDict  = '}'
	opDict       = 'd'
	opSetItem    = 's'
	opSetItems   = 'u'
	opEmptySet   = 0x8f
	opAddItems   = 0x90
	opFrozenSet  = 0x91
	opProto      = 0x80
	opFrame      = 0x95
	opMemoize    = 0x94
	opBinPut     = 'q'
	opLongBinPut = 'r'
	opBinGet     = 'h'
	opLongBinGet = 'j'
)

// refused are the names of opcodes that make more than data: they import, call, or ask
// somebody for an object.
var refused = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
	0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 'P': "PERSID", 'Q': "BINPERSID", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}

// opcode names an opcode that is not carried out.
func opcode(op byte) string {
	if name := refused[op]; name != "" {
		return name
	}
	return fmt.Sprintf("%#02x", op)
}
