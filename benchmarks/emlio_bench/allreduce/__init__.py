"""An all-reduce beside a loader that receives at full rate: what each takes from the other."""
