number mine = load_0(first);
for (uint at = item; at < length; at += ITEMS)
    mine = larger(mine, load_0(first + at * stride));
ALL(larger, mine, largest)
if (item == 0)
    store_1(place_1(row), largest);
