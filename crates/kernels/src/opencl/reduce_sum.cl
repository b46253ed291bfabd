number mine = 0;
for (uint at = item; at < length; at += ITEMS)
    mine = add(mine, load_0(first + at * stride));
ALL(add, mine, total)
if (item == 0)
    store_1(place_1(row), total);
